package api

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
)

// asking is a request with headers, given as name and value in turn.
func asking(t testing.TB, headers ...string) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/x?y=1", http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func testAPI(t *testing.T) *API {
	o := newOutside(slog.New(slog.DiscardHandler))
	t.Cleanup(o.transport.CloseIdleConnections)
	return &API{outside: o}
}

func TestPrincipal(t *testing.T) {
	t.Parallel()
	a := testAPI(t)
	byHeaders := a.newPrincipal(Principal{Headers: []string{"authorization", "X-Tenant"}})
	trusted := a.newPrincipal(Principal{TrustedHeader: "x-user"})
	seen := map[string]string{}
	for name, c := range map[string]struct {
		read  principalReader
		r     *http.Request
		named string
	}{
		"Token":        {byHeaders, asking(t, "Authorization", "a"), ""},
		"OtherToken":   {byHeaders, asking(t, "Authorization", "b"), ""},
		"TokenOfX":     {byHeaders, asking(t, "Authorization", "a", "X-Tenant", "x"), ""},
		"OnlyTenant":   {byHeaders, asking(t, "X-Tenant", "a"), ""},
		"Mimic":        {byHeaders, asking(t, "Authorization", "x", "X-Tenant", "y", "X-Tenant", "X-Tenant"), ""},
		"Mimicked":     {byHeaders, asking(t, "Authorization", "x", "Authorization", "X-Tenant", "Authorization", "y"), ""},
		"TwoTokens":    {byHeaders, asking(t, "Authorization", "a", "Authorization", "a"), ""},
		"Trusted":      {trusted, asking(t, "X-User", "a"), ""},
		"TrustedOther": {trusted, asking(t, "X-User", "b"), ""},
		"None":         {a.newPrincipal(Principal{None: true}), asking(t), ""},
		"Authorized":   {a.newPrincipal(Principal{Authorize: true}), asking(t), "a"},
		"Go":           {a.newPrincipal(Principal{Func: func(*http.Request) (string, error) { return "a", nil }}), asking(t), ""},
	} {
		who, p := c.read(c.r, c.named)
		if p != nil {
			t.Errorf("%s: %+v", name, p)
		}
		if other, taken := seen[who]; taken {
			t.Errorf("%s and %s are one principal", name, other)
		}
		seen[who] = name
		if again, _ := c.read(c.r.Clone(t.Context()), c.named); again != who {
			t.Errorf("%s is another principal the second time", name)
		}
	}
	for name, c := range map[string]struct {
		read principalReader
		r    *http.Request
		want code
	}{
		"NoToken":           {byHeaders, asking(t), codePrincipalMissing},
		"NobodyTrusted":     {trusted, asking(t), codePrincipalMissing},
		"EmptyTrusted":      {trusted, asking(t, "X-User", ""), codePrincipalMissing},
		"TwoTrusted":        {trusted, asking(t, "X-User", "a", "X-User", "b"), codePrincipalMissing},
		"NamelessAuthority": {a.newPrincipal(Principal{Authorize: true}), asking(t), codePrincipalMissing},
		"GoRefuses":         {a.newPrincipal(Principal{Func: func(*http.Request) (string, error) { return "", http.ErrNoCookie }}), asking(t), codeTokenInvalid},
	} {
		if who, p := c.read(c.r, ""); p == nil || p.code != c.want {
			t.Errorf("%s: %q, %+v", name, who, p)
		}
	}
}

// issuer signs tokens and publishes keys.
type issuer struct {
	key   ed25519.PrivateKey
	kid   string
	gets  atomic.Int64
	keys  atomic.Pointer[[]byte]
	broke atomic.Bool
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{}
	i.rotate(t, "one")
	return i
}

func (i *issuer) rotate(t *testing.T, kid string) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.key, i.kid = private, kid
	set := jwkset.JWKSMarshal{Keys: []jwkset.JWKMarshal{{KTY: "future"}, marshalKey(t, public, kid)}}
	body, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	i.keys.Store(&body)
}

func marshalKey(t *testing.T, public any, kid string) jwkset.JWKMarshal {
	key, err := jwkset.NewJWKFromKey(public, jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: kid}})
	if err != nil {
		t.Fatal(err)
	}
	return key.Marshal()
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	i.gets.Add(1)
	if i.broke.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(*i.keys.Load())
}

func (i *issuer) token(t *testing.T, claims jwt.MapClaims) string {
	return i.signed(t, jwt.SigningMethodEdDSA, i.key, i.kid, claims)
}

func (*issuer) signed(t *testing.T, method jwt.SigningMethod, key any, kid string, claims jwt.MapClaims) string {
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = kid
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestJWT(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	a := testAPI(t)
	v := newVerifier(JWT{JWKS: server.URL, Issuer: "https://idp", Audience: "pay"}, a.outside)
	claims := func(changes ...any) jwt.MapClaims {
		c := jwt.MapClaims{"iss": "https://idp", "sub": "alice", "aud": "pay", "exp": time.Now().Add(time.Hour).Unix()}
		for j := 0; j < len(changes); j += 2 {
			if c[changes[j].(string)] = changes[j+1]; changes[j+1] == nil {
				delete(c, changes[j].(string))
			}
		}
		return c
	}
	bearer := func(token string) *http.Request { return asking(t, "Authorization", "Bearer "+token) }
	alice, p := v.principal(bearer(i.token(t, claims())), "")
	if p != nil {
		t.Fatalf("%+v", p)
	}
	t.Run("ARefreshedTokenIsTheSamePrincipal", func(t *testing.T) {
		if again, p := v.principal(bearer(i.token(t, claims("exp", time.Now().Add(2*time.Hour).Unix(), "jti", "2"))), ""); again != alice || p != nil {
			t.Errorf("%q, %+v", again, p)
		}
	})
	t.Run("AnotherSubjectIsAnother", func(t *testing.T) {
		if bob, p := v.principal(bearer(i.token(t, claims("sub", "bob"))), ""); bob == alice || p != nil {
			t.Errorf("%q, %+v", bob, p)
		}
	})
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	elliptical, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := i.token(t, claims())
	for name, r := range map[string]*http.Request{
		"Nothing":       asking(t),
		"AnotherScheme": asking(t, "Authorization", "Basic "+good),
		"TwoTokens":     asking(t, "Authorization", "Bearer "+good, "Authorization", "Bearer "+good),
		"Noise":         bearer("a.b.c"),
		"Expired":       bearer(i.token(t, claims("exp", time.Now().Add(-time.Hour).Unix()))),
		"AnotherIssuer": bearer(i.token(t, claims("iss", "https://evil"))),
		"AnotherPlace":  bearer(i.token(t, claims("aud", "mail"))),
		"NoSubject":     bearer(i.token(t, claims("sub", nil))),
		"EmptySubject":  bearer(i.token(t, claims("sub", ""))),
		"Forged":        bearer(i.signed(t, jwt.SigningMethodEdDSA, stranger, i.kid, claims())),
		"Unsigned":      bearer(i.signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, i.kid, claims())),
		"Symmetric":     bearer(i.signed(t, jwt.SigningMethodHS256, []byte(i.key.Public().(ed25519.PublicKey)), i.kid, claims())),
		"AnotherKind":   bearer(i.signed(t, jwt.SigningMethodES256, elliptical, i.kid, claims())),
	} {
		if who, p := v.principal(r, ""); p == nil || p.code != codeTokenInvalid || p.headers.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %q, %+v", name, who, p)
		}
	}
	t.Run("KeysAreKept", func(t *testing.T) {
		before := i.gets.Load()
		for range 10 {
			if _, p := v.principal(bearer(good), ""); p != nil {
				t.Fatalf("%+v", p)
			}
		}
		if i.gets.Load() != before {
			t.Errorf("%d more looks at the keys", i.gets.Load()-before)
		}
	})
	t.Run("NewKeysAreFound", func(t *testing.T) {
		i.rotate(t, "two")
		v.keys.looked = time.Time{} // as after the pause
		if who, p := v.principal(bearer(i.token(t, claims())), ""); who != alice || p != nil {
			t.Errorf("%q, %+v", who, p)
		}
	})
	t.Run("KnownKeysOutliveTheirSource", func(t *testing.T) {
		i.broke.Store(true)
		v.keys.looked, v.keys.read = time.Time{}, time.Time{}
		if who, p := v.principal(bearer(i.token(t, claims())), ""); who != alice || p != nil {
			t.Errorf("%q, %+v", who, p)
		}
	})
	t.Run("WithoutKeysNobodyIsJudged", func(t *testing.T) {
		blind := newVerifier(JWT{JWKS: server.URL}, a.outside)
		if _, p := blind.principal(bearer(good), ""); p == nil || p.code != codeAuthorizationDown {
			t.Errorf("%+v", p)
		}
	})
	t.Run("KeysMayBeAFile", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(file, *i.keys.Load(), 0o600); err != nil {
			t.Fatal(err)
		}
		local := newVerifier(JWT{JWKS: file}, a.outside)
		if who, p := local.principal(bearer(i.token(t, claims())), ""); who != alice || p != nil {
			t.Errorf("%q, %+v", who, p)
		}
	})
}

func TestAuthorize(t *testing.T) {
	t.Parallel()
	a := testAPI(t)
	var status atomic.Int64
	var asked atomic.Pointer[http.Request]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r)
		w.Header().Set("X-Principal", "alice")
		w.Header().Set("WWW-Authenticate", "Custom")
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte("no"))
	}))
	t.Cleanup(server.Close)
	z := newAuthorizer(Authorize{URL: server.URL, PrincipalHeader: "X-Principal"}, a.outside)
	ask := func(s int) (string, *problem) {
		status.Store(int64(s))
		return z.ask(asking(t, "Authorization", "t", "Content-Length", "3", "Connection", "X-Hop", "X-Hop", "1"))
	}
	if named, p := ask(200); named != "alice" || p != nil {
		t.Errorf("%q, %+v", named, p)
	}
	if r := asked.Load(); r.Method != http.MethodGet || r.Header.Get("Authorization") != "t" || r.Header.Get("X-Hop") != "" ||
		r.Header.Get("X-Original-Method") != http.MethodPost || r.Header.Get("X-Original-URI") != "/x?y=1" {
		t.Errorf("asked %s with %v", r.Method, r.Header)
	}
	for _, s := range []int{401, 403} {
		_, p := ask(s)
		if p == nil || p.refusal == nil {
			t.Fatalf("%d: %+v", s, p)
		}
		w := httptest.NewRecorder()
		p.refusal.passOn(w)
		if w.Code != s || w.Body.String() != "no" || w.Header().Get("WWW-Authenticate") != "Custom" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%d: %d %q %v", s, w.Code, w.Body, w.Header())
		}
	}
	for _, s := range []int{302, 404, 500} {
		if _, p := ask(s); p == nil || p.code != codeAuthorizationDown {
			t.Errorf("%d: %+v", s, p)
		}
	}
	server.Close()
	if _, p := ask(200); p == nil || p.code != codeAuthorizationDown {
		t.Errorf("%+v", p)
	}
}

func TestRealm(t *testing.T) {
	t.Parallel()
	r := asking(t, "X-Tenant", "acme")
	r.Host = "Shop.Example"
	r.SetPathValue("id", "7")
	for _, c := range []struct {
		m    Realm
		want string
	}{{Realm{}, ""}, {Realm{Constant: "c"}, "c"}, {Realm{Header: "x-tenant"}, "acme"}, {Realm{Host: true}, "shop.example"}, {Realm{Path: "id"}, "7"}} {
		if got, p := c.m.of(r); got != c.want || p != nil {
			t.Errorf("%+v: %q, %+v", c.m, got, p)
		}
	}
	for _, m := range []Realm{{Header: "X-Other"}, {Path: "other"}} {
		if got, p := m.of(r); p == nil || p.code != codeRealmMissing {
			t.Errorf("%+v: %q, %+v", m, got, p)
		}
	}
	twice := asking(t, "X-Tenant", "a", "X-Tenant", "b")
	if got, p := (Realm{Header: "X-Tenant"}).of(twice); p == nil {
		t.Errorf("two headers: %q", got)
	}
}
