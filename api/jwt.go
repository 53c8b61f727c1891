package api

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"
)

// asymmetric are the algorithms accepted: a set of public keys can verify
// nothing else.
var asymmetric = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

const (
	jwksFresh   = 5 * time.Minute  // how long keys are used without looking again
	jwksPause   = 10 * time.Second // between two looks for a key that is not there
	jwksTimeout = 5 * time.Second
	jwksBytes   = 1 << 20
)

// errNoKeys: the issuer's keys cannot be had.
var errNoKeys = errors.New("no keys to verify tokens with")

// verifier takes the principal out of a bearer token (RFC 6750) that an issuer
// of the key set has signed. A claim of any other token would let a forged one
// read stored responses.
type verifier struct {
	claims []string
	parser *jwt.Parser
	keys   *keySet
}

func newVerifier(j JWT, o *outside) *verifier {
	setDefault(&j.Leeway, 30*time.Second)
	if len(j.Claims) == 0 {
		j.Claims = []string{"iss", "sub"}
	}
	options := []jwt.ParserOption{jwt.WithValidMethods(asymmetric), jwt.WithLeeway(j.Leeway), jwt.WithJSONNumber()}
	if j.Issuer != "" {
		options = append(options, jwt.WithIssuer(j.Issuer))
	}
	if j.Audience != "" {
		options = append(options, jwt.WithAudience(j.Audience))
	}
	return &verifier{claims: j.Claims, parser: jwt.NewParser(options...), keys: &keySet{source: j.JWKS, outside: o}}
}

func (v *verifier) principal(r *http.Request, _ string) (string, *problem) {
	invalid := &problem{code: codeTokenInvalid, headers: http.Header{"Www-Authenticate": {`Bearer error="invalid_token"`}}}
	lines := r.Header["Authorization"]
	if len(lines) == 0 {
		invalid.headers = http.Header{"Www-Authenticate": {"Bearer"}}
		return "", invalid
	}
	scheme, raw, _ := strings.Cut(lines[0], " ")
	if len(lines) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return "", invalid
	}
	claims := jwt.MapClaims{}
	_, err := v.parser.ParseWithClaims(strings.TrimSpace(raw), claims, func(t *jwt.Token) (any, error) {
		return v.keys.find(r.Context(), t)
	})
	if errors.Is(err, errNoKeys) {
		return "", &problem{code: codeAuthorizationDown}
	}
	if err != nil {
		return "", invalid
	}
	parts := []string{"jwt"}
	for _, name := range v.claims {
		value, ok := claims[name]
		text, err := json.Marshal(value)
		if !ok || err != nil || value == "" || value == nil {
			return "", invalid
		}
		parts = append(parts, name, string(text))
	}
	return frame(parts...), nil
}

// keySet is an issuer's public keys, kept for a while. A key that is not in it
// makes it look again, since issuers change their keys; while they cannot be
// had the last known ones go on.
type keySet struct {
	source  string
	outside *outside
	looking singleflight.Group

	mu     sync.Mutex
	keys   []jwkset.JWK
	read   time.Time // when keys were last read
	looked time.Time // when that was last tried
}

// find returns the keys that may have signed the token.
func (k *keySet) find(ctx context.Context, t *jwt.Token) (any, error) {
	keys, age := k.known()
	if age > jwksFresh {
		k.look(ctx)
		keys, _ = k.known()
	}
	if keys == nil {
		return nil, errNoKeys
	}
	kid, _ := t.Header["kid"].(string)
	if set := candidates(keys, kid, t.Method.Alg()); len(set.Keys) > 0 {
		return set, nil
	}
	k.look(ctx)
	keys, _ = k.known()
	if set := candidates(keys, kid, t.Method.Alg()); len(set.Keys) > 0 {
		return set, nil
	}
	return nil, fmt.Errorf("no key %q for %s", kid, t.Method.Alg())
}

func (k *keySet) known() (keys []jwkset.JWK, age time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys, time.Since(k.read)
}

// look reads the keys again, unless that was just tried. It is done once for
// all who ask, and not given up because one of them leaves.
func (k *keySet) look(ctx context.Context) {
	_, _, _ = k.looking.Do("", func() (any, error) {
		k.mu.Lock()
		tried := time.Since(k.looked) < jwksPause
		if !tried {
			k.looked = time.Now()
		}
		k.mu.Unlock()
		if tried {
			return nil, nil
		}
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), jwksTimeout)
		defer cancel()
		keys, err := k.fetch(limit)
		if err != nil {
			k.outside.warn(ctx, "keys cannot be read", "source", k.source, "error", err)
			return nil, nil
		}
		k.mu.Lock()
		k.keys, k.read = keys, time.Now()
		k.mu.Unlock()
		return nil, nil
	})
}

func (k *keySet) fetch(ctx context.Context) ([]jwkset.JWK, error) {
	var raw []byte
	var err error
	if strings.HasPrefix(k.source, "http://") || strings.HasPrefix(k.source, "https://") {
		raw, err = k.outside.fetch(ctx, k.source, jwksBytes)
	} else {
		raw, err = os.ReadFile(k.source)
	}
	if err != nil {
		return nil, err
	}
	var set jwkset.JWKSMarshal
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, fmt.Errorf("parse key set: %w", err)
	}
	keys := make([]jwkset.JWK, 0, len(set.Keys))
	for _, m := range set.Keys {
		// A key of a kind that nobody here knows does not spoil the others.
		if key, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{}); err == nil {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("parse key set: no usable key")
	}
	return keys, nil
}

// candidates are the public keys that a token with this key id and algorithm
// may have been signed with.
func candidates(keys []jwkset.JWK, kid, alg string) (set jwt.VerificationKeySet) {
	for _, key := range keys {
		m := key.Marshal()
		if kid != "" && m.KID != kid || m.USE == jwkset.UseEnc || m.ALG != "" && string(m.ALG) != alg {
			continue
		}
		switch public := key.Key().(type) {
		case *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey:
			if fits(public, alg) {
				set.Keys = append(set.Keys, public)
			}
		}
	}
	return set
}

// fits reports whether the algorithm is one for keys of this kind.
func fits(public any, alg string) bool {
	switch public.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")
	case *ecdsa.PublicKey:
		return strings.HasPrefix(alg, "ES")
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false
}
