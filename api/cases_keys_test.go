package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
)

// TestCase holds faults of comparable systems, each through every door that it
// can come through. See also the other files called cases.
func TestCase(t *testing.T) {
	t.Parallel()
	for name, scenario := range map[string]func(t *testing.T, d door){
		"K08_HandlerFailsAfterItsEffect":    caseK08,
		"K09_HandlerEndsOddly":              caseK09,
		"K10_ClientGoesAway":                caseK10,
		"K11_DuplicateOfARunningCommit":     caseK11,
		"K14_CredentialsAreNotReplayed":     caseK14,
		"K15_AnotherPrincipalHasItsOwnKeys": caseK15,
		"K16_RefusedCredentialFreesTheKey":  caseK16,
		"K17_SameKeyOnAnotherPath":          caseK17,
		"K18_StoreDown":                     caseK18,
		"K19_LongKeys":                      caseK19,
		"K21_KeysThatAreNone":               caseK21,
		"K22_SameJSONInAnotherOrder":        caseK22,
		"K23_FramingDoesNotMatter":          caseK23,
		"K24_OtherPayloadWhileTheFirstRuns": caseK24,
		"K25_FailuresOfTheService":          caseK25,
		"K29_ReplayIsTheSame":               caseK29,
		"K30_EmptyResponses":                caseK30,
		"K31_ResponseTooLargeToKeep":        caseK31,
		"K32_StreamsPassThrough":            caseK32,
		"K33_ReplayedFailureIsMarked":       caseK33,
		"K34_OneKeyTenTimesOverTwoNodes":    caseK34,
		"K39_FiftyAtOnceOverTwoNodes":       caseK39,
		"K51_AThousandOutliveTheOwner":      caseK51,
		"K53_SameKeyOnAnotherOperation":     caseK53,
		"K54_IcebergKeys":                   caseK54,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			throughBoth(t, scenario)
		})
	}
	// These are about the gateway's own connection, and about a service in the
	// node's own process.
	t.Run("K00_LostReplyIsNotSentAgain", func(t *testing.T) { t.Parallel(); caseK00(t) })
	t.Run("K09_PanicInAGoroutine", func(t *testing.T) { t.Parallel(); caseK09Process(t) })
}

func caseK14(t *testing.T, d door) {
	l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Add("Set-Cookie", "session=secret")
		h.Set("WWW-Authenticate", "Negotiate token")
		h.Set("Proxy-Authenticate", "Basic")
		h.Set("X-Kept", "yes")
		h.Add("X-Twice", "1")
		h.Add("X-Twice", "2")
		_, _ = io.WriteString(w, "welcome")
	}}
	url := d.node0(t, payments(t), l)
	first := send(t, url, request{key: "k"}).want(t, 200, "Set-Cookie: session=secret", "Www-Authenticate: Negotiate token")
	replay := send(t, url, request{key: "k"})
	replay.wantReplayOf(t, first)
	for _, name := range []string{"Set-Cookie", "Www-Authenticate", "Proxy-Authenticate"} {
		if v := replay.header.Values(name); len(v) > 0 {
			t.Errorf("replayed %s: %q", name, v)
		}
	}
	if replay.header.Get("X-Kept") != "yes" || !equalStrings(replay.header.Values("X-Twice"), []string{"1", "2"}) {
		t.Errorf("headers = %v", replay.header)
	}
	l.want(t, 1)
}

func caseK15(t *testing.T, d door) {
	l := &ledger{answer: func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "for "+r.Header.Get("Authorization"))
	}}
	url := d.node0(t, payments(t), l)
	for _, who := range []string{"alice", "bob", "alice", "bob"} {
		if got := send(t, url, request{key: "k", body: "{}", token: who}).want(t, 200); got.body != "for Bearer "+who {
			t.Errorf("%s got %q", who, got.body)
		}
	}
	l.want(t, 2)
}

func caseK16(t *testing.T, d door) {
	l := &ledger{}
	l.answer = func(w http.ResponseWriter, _ *http.Request) {
		if l.effects.Load() == 1 { // revoked just now, say
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
	url := d.node0(t, payments(t), l)
	send(t, url, request{key: "k"}).want(t, 401, "Www-Authenticate: Bearer", "Idempotency-Expires: ")
	first := send(t, url, request{key: "k"}).want(t, 201, "Idempotency-Status: executed")
	send(t, url, request{key: "k"}).wantReplayOf(t, first)
	l.want(t, 2)
}

func caseK17(t *testing.T, d door) {
	anotherOperation(t, d, request{path: "/orders", key: "k", body: "{}"}, request{path: "/orders/1/cancel", key: "k", body: "{}"})
}

func caseK53(t *testing.T, d door) {
	anotherOperation(t, d, request{path: "/orders/1/cancel", key: "k"}, request{path: "/orders/1/refund", key: "k"})
}

// anotherOperation: two routes of one node, one key.
func anotherOperation(t *testing.T, d door, one, other request) {
	l := creates()
	var routes []api.Route
	for _, path := range []string{"/orders", "/orders/{id}/cancel", "/orders/{id}/refund"} {
		r := payments(t)
		r.Path, r.Operation, r.Resource = path, path+" "+t.Name(), ""
		routes = append(routes, r)
	}
	url := d.openAll(t, routes, l, fleet()[0])[0]
	first := send(t, url, one).want(t, 201)
	send(t, url, other).wantProblem(t, 422, "idempotency_key_reused")
	send(t, url, one).wantReplayOf(t, first)
	l.want(t, 1)
}

// downStore is a store that cannot be asked for a key.
type downStore struct {
	records.Store
	down atomic.Bool
}

func (s *downStore) Reserve(ctx contextT, r records.Reservation) (records.Reserved, error) {
	if s.down.Load() {
		return records.Reserved{}, records.ErrUnavailable
	}
	return s.Store.Reserve(ctx, r)
}

func caseK18(t *testing.T, d door) {
	store := &downStore{Store: openStore(filepath.Join(t.TempDir(), "probate.db"))}
	n := startNode("alone", store)
	t.Cleanup(n.close)
	l := creates()
	url := d.open(t, payments(t), l, n)[0]
	store.down.Store(true)
	for range 2 {
		got := send(t, url, request{key: "k"})
		p := got.wantProblem(t, 503, "store_unavailable")
		if got.header.Get("Retry-After") == "" || p["retryable"] != true || p["same_key"] != true {
			t.Errorf("answer = %v %v", got.header, p)
		}
	}
	l.want(t, 0)
	store.down.Store(false)
	send(t, url, request{key: "k"}).want(t, 201, "Idempotency-Status: executed")
	l.want(t, 1)
}

func caseK19(t *testing.T, d door) {
	l := creates()
	url := d.node0(t, payments(t), l)
	for name, key := range map[string]string{
		"256": strings.Repeat("k", 256), "3000 hex": strings.Repeat("0123456789abcdef", 3000/16),
		"100000": strings.Repeat("x", 100_000), "900 KB": strings.Repeat("y", 900_000), "quoted": `"` + strings.Repeat("k", 256) + `"`,
	} {
		got := send(t, url, request{key: key})
		if code := got.wantProblem(t, 400, "idempotency_key_too_long")["code"]; got.header.Get("Idempotency-Key") != "" {
			t.Errorf("%s: %v repeats the key", name, code)
		}
	}
	l.want(t, 0)
	send(t, url, request{key: strings.Repeat("k", 255)}).want(t, 201)
	l.want(t, 1)
}

func caseK21(t *testing.T, d door) {
	l := creates()
	route := payments(t)
	url := d.node0(t, route, l)
	for name, lines := range map[string][]string{
		"two lines": {"a", "b"}, "twice the same": {"a", "a"}, "list": {`"a", "b"`}, "list of words": {"a, b"}, "joined": {"a,b"},
		"space in quotes": {`"a, b"`}, "empty": {""}, "blanks": {"   "}, "empty quotes": {`""`}, "blank quotes": {`" "`},
		"parameter": {`"a";x=1`}, "word with parameter": {"a;x=1"}, "open quote": {`"a`}, "only a quote": {`"`}, "late quote": {`a"`}, "escape": {`"\a"`},
		"tab inside": {"a\tb"}, "latin1": {"caf\xe9"}, "utf8": {"схема"},
	} {
		got := send(t, url, request{header: http.Header{"Idempotency-Key": lines}})
		if got.status != 400 {
			t.Errorf("%s: status %d, want 400", name, got.status)
		}
		got.wantProblem(t, 400, "idempotency_key_invalid")
	}
	l.want(t, 0)

	// Without a key it is nobody's business, unless the route demands one.
	send(t, url, request{}).want(t, 201, "Idempotency-Status: ", "Idempotency-Key: ")
	l.want(t, 1)
	route.Required, route.Operation = true, route.Operation+" required"
	send(t, d.node0(t, route, l), request{}).wantProblem(t, 400, "idempotency_key_missing")
	l.want(t, 1)

	// Quoted or not, it is the same key.
	first := send(t, url, request{key: `"same"`}).want(t, 201, `Idempotency-Key: "same"`)
	send(t, url, request{key: "same"}).wantReplayOf(t, first)
	l.want(t, 2)
}

func caseK22(t *testing.T, d door) {
	l := creates()
	exact, canonical := payments(t), payments(t)
	canonical.Operation += " canonical"
	canonical.Fingerprint = api.FingerprintOptions{CanonicalJSON: true, IgnoreJSON: []string{"/sent_at"}}
	one, other := `{"a":1,"b":[2.0,"é"],"sent_at":1}`, `{ "b":[2,"\u00e9"], "sent_at":2, "a":1 }`

	url := d.node0(t, exact, l)
	send(t, url, request{key: "exact", body: one}).want(t, 201)
	send(t, url, request{key: "exact", body: other}).wantProblem(t, 422, "idempotency_key_reused")

	url = d.node0(t, canonical, l)
	first := send(t, url, request{key: "canonical", body: one}).want(t, 201)
	send(t, url, request{key: "canonical", body: other}).wantReplayOf(t, first)
	send(t, url, request{key: "canonical", body: `{"a":2,"b":[2,"é"]}`}).wantProblem(t, 422, "idempotency_key_reused")
	for i, bodies := range [][2]string{
		{`{"amount":9007199254740993}`, `{"amount":9007199254740992}`}, {`{"a":1,"a":2}`, `{"a":2}`}, {`{"s":"\ud800"}`, `{"s":"\udbff"}`},
	} {
		key := fmt.Sprint("number", i)
		send(t, url, request{key: key, body: bodies[0]}).want(t, 201)
		send(t, url, request{key: key, body: bodies[1]}).wantProblem(t, 422, "idempotency_key_reused")
	}
	send(t, url, request{key: "query", path: paymentPath + "?a=&a=b&c="}).want(t, 201)
	send(t, url, request{key: "query", path: paymentPath + "?a=&b=c&b="}).wantProblem(t, 422, "idempotency_key_reused")
}

func caseK23(t *testing.T, d door) {
	var seen atomic.Pointer[string]
	l := &ledger{answer: func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s := string(body)
		seen.Store(&s)
		w.WriteHeader(http.StatusCreated)
	}}
	url := d.node0(t, payments(t), l)
	body := `"` + strings.Repeat("b", 64<<10-1) + `"`
	if len(body) != 64<<10+1 {
		t.Fatal(len(body))
	}
	first := send(t, url, request{key: "k", body: body}).want(t, 201)
	if *seen.Load() != body {
		t.Errorf("the service saw %d bytes, want %d", len(*seen.Load()), len(body))
	}
	send(t, url, request{key: "k", body: body, header: http.Header{"Expect": {"100-continue"}}}).wantReplayOf(t, first)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+paymentPath, struct{ io.Reader }{strings.NewReader(body)})
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Idempotency-Key": {"k"}, "Authorization": {"Bearer alice"}, "Content-Type": {"application/json"}}
	exchange(req).wantReplayOf(t, first) // in chunks

	send(t, url, request{key: "k", body: body, header: http.Header{"Content-Type": {"Application/JSON"}}}).wantReplayOf(t, first)
	send(t, url, request{key: "k", body: body, header: http.Header{"Content-Type": {"text/plain"}}}).wantProblem(t, 422, "idempotency_key_reused")
	l.want(t, 1)

	large := payments(t)
	large.Operation, large.MaxRequestBytes = large.Operation+" small", 10
	url = d.node0(t, large, l)
	send(t, url, request{key: "l", body: "12345678901"}).wantProblem(t, 413, "request_too_large")
	req, err = http.NewRequestWithContext(t.Context(), http.MethodPost, url+paymentPath, struct{ io.Reader }{strings.NewReader("12345678901")})
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Idempotency-Key": {"l"}, "Authorization": {"Bearer alice"}}
	exchange(req).wantProblem(t, 413, "request_too_large")
	l.want(t, 1)
	send(t, url, request{key: "l", body: "1234567890"}).want(t, 201)
	cutBody(t, url)
	l.want(t, 2)
}

// cutBody sends half of a body and hangs up its half of the connection.
func cutBody(t *testing.T, where string) {
	t.Helper()
	conn := dial(t, where)
	defer conn.Close()
	say(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\nIdempotency-Key: cut\r\nContent-Length: 9\r\n\r\nhalf", paymentPath)
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("half a body: %s", resp.Status)
	}
}

func caseK24(t *testing.T, d door) {
	begun, finish := make(chan struct{}), make(chan struct{})
	l := &ledger{answer: func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		w.WriteHeader(http.StatusCreated)
	}}
	urls := d.bothNodes(t, payments(t), l)
	first := background(t, urls[0], request{key: "k", body: `{"amount":1}`})
	<-begun
	for _, url := range urls {
		send(t, url, request{key: "k", body: `{"amount":2}`}).wantProblem(t, 422, "idempotency_key_reused")
	}
	close(finish)
	(<-first).want(t, 201)
	l.want(t, 1)
}

// background sends and lets the test go on.
func background(t testing.TB, url string, q request) <-chan response {
	got := make(chan response, 1)
	go func() { got <- trySend(t, url, q) }()
	return got
}

func caseK54(t *testing.T, d door) {
	l := creates()
	route := payments(t)
	route.Profile = api.ProfileIceberg
	url := d.node0(t, route, l)
	const key = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
	first := send(t, url, request{key: key}).want(t, 201, "Idempotency-Key-Lifetime: PT24H")
	send(t, url, request{key: strings.ToUpper(key)}).wantReplayOf(t, first)
	send(t, url, request{key: `"` + key + `"`}).wantReplayOf(t, first)
	for _, bad := range []string{"1-1-1-1-1", "919108f7-52d1-4320-9bac-f847db4148a8", key + "0", "017f22e2-79b0-7cc3-78c4-dc0c0c07398f"} {
		got := send(t, url, request{key: bad}).want(t, 400, "Content-Type: application/json")
		if !strings.Contains(got.body, `"type":"BadRequestException","code":400`) {
			t.Errorf("body = %s", got.body)
		}
	}
	l.want(t, 1)
}
