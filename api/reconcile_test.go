package api

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

func TestReadStatement(t *testing.T) {
	t.Parallel()
	text := func(status int, body string, headers ...records.Header) takeover.Finding {
		return takeover.FoundApplied(records.Response{Status: status, Headers: append([]records.Header{}, headers...), Body: []byte(body)})
	}
	for name, c := range map[string]struct {
		status int // default 200
		media  string
		body   string
		want   takeover.Finding
		errs   bool // no finding
	}{
		"Applied": {
			body: `{"finding":"applied","response":{"status":201,"headers":{"content-type":["text/plain"],"Set-Cookie":["x"]},"body":"ok"}}`,
			want: text(201, "ok", records.Header{Name: "Content-Type", Value: "text/plain"}),
		},
		"AppliedWithBytes":             {body: `{"finding":"applied","response":{"status":200,"body_base64":"AP8="}}`, want: text(200, "\x00\xff")},
		"AppliedWithoutBody":           {body: `{"finding":"applied","response":{"status":204}}`, want: text(204, "")},
		"NotApplied":                   {body: `{"finding":"not_applied"}`, want: takeover.FoundNotApplied()},
		"Pending":                      {body: `{"finding":"pending"}`, want: takeover.FoundPending(7 * time.Second)},
		"Undecidable":                  {body: ` {"finding":"undecidable"} `},
		"RefusesAnotherStatus":         {status: 201, body: `{"finding":"applied"}`, errs: true},
		"RefusesAnotherMedium":         {media: "text/html", body: `{"finding":"not_applied"}`, errs: true},
		"RefusesAppliedAlone":          {body: `{"finding":"applied"}`, errs: true},
		"RefusesAResponseWithoutCause": {body: `{"finding":"not_applied","response":{"status":200}}`, errs: true},
		"RefusesNothing":               {body: ``, errs: true},
		"RefusesAnEmptyObject":         {body: `{}`, errs: true},
		"RefusesAnUnknownFinding":      {body: `{"finding":"maybe"}`, errs: true},
		"RefusesAnUnknownMember":       {body: `{"finding":"not_applied","respones":{}}`, errs: true},
		"RefusesWhatFollows":           {body: `{"finding":"not_applied"}{}`, errs: true},
		"RefusesATypeError":            {body: `{"finding":["applied"]}`, errs: true},
		"RefusesTwoFindings":           {body: `{"finding":"pending","finding":"not_applied"}`, errs: true},
		"RefusesTwoFindingsInAnyCase":  {body: `{"finding":"pending","FINDING":"not_applied"}`, errs: true},
		"RefusesAnotherCase":           {body: `{"Finding":"not_applied"}`, errs: true},
		"RefusesTwoResponses":          {body: `{"finding":"applied","response":{"status":201},"response":{"status":200}}`, errs: true},
		"RefusesTwoStatuses":           {body: `{"finding":"applied","response":{"status":201,"STATUS":409}}`, errs: true},
		"RefusesAnArray":               {body: `["not_applied"]`, errs: true},
		"RefusesDepths":                {body: strings.Repeat(`{"response":`, 1000), errs: true},
		"RefusesNoStatus":              {body: `{"finding":"applied","response":{"body":"x"}}`, errs: true},
		"RefusesAStatus":               {body: `{"finding":"applied","response":{"status":99}}`, errs: true},
		"RefusesWhatIsNeverStored":     {body: `{"finding":"applied","response":{"status":401}}`, errs: true},
		"RefusesTwoBodies":             {body: `{"finding":"applied","response":{"status":200,"body":"","body_base64":""}}`, errs: true},
		"RefusesABodyWithoutPlace":     {body: `{"finding":"applied","response":{"status":204,"body":"x"}}`, errs: true},
		"RefusesBrokenBytes":           {body: `{"finding":"applied","response":{"status":200,"body_base64":"?"}}`, errs: true},
		"RefusesALargeBody":            {body: `{"finding":"applied","response":{"status":200,"body":"` + strings.Repeat("x", 101) + `"}}`, errs: true},
		"RefusesAHeaderName":           {body: `{"finding":"applied","response":{"status":200,"headers":{"a b":["x"]}}}`, errs: true},
		"RefusesAHeaderValue":          {body: `{"finding":"applied","response":{"status":200,"headers":{"A":["x\r\nB: y"]}}}`, errs: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setDefault(&c.status, 200)
			setDefault(&c.media, "application/json; charset=utf-8")
			got, err := readStatement(reply{c.status, http.Header{"Content-Type": {c.media}, "Retry-After": {"7"}}, []byte(c.body)}, 100)
			if (err != nil) != c.errs {
				t.Fatalf("error = %v", err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLook(t *testing.T) {
	t.Parallel()
	o := newOutside(slog.New(slog.DiscardHandler))
	t.Cleanup(o.transport.CloseIdleConnections)
	record := records.Record{Resource: "a/b c?", Key: "k&k", Realm: "r"}
	find := func(t *testing.T, r records.Record, handler http.HandlerFunc) (takeover.Finding, error) {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		config := Reconcile{Get: server.URL + "/orders/{resource}?key={key}&realm={realm}", Headers: map[string]string{"Authorization": "us"}}.withDefaults()
		return newReconciler(Route{Reconcile: config, MaxResponseBytes: 10}, o).Reconcile(t.Context(), r, takeover.Request{})
	}
	for name, c := range map[string]struct {
		status int
		body   string
		want   takeover.Finding
	}{
		"Applied": {200, "it", takeover.FoundApplied(records.Response{
			Status: 201, Headers: []records.Header{{Name: "Content-Type", Value: "x/y"}}, Body: []byte("it"),
		})},
		"AppliedThoughTooLarge": {200, "0123456789a", takeover.FoundApplied(records.Response{
			Status: 201, Headers: []records.Header{{Name: "Content-Type", Value: "x/y"}},
		})},
		"NotFound":    {404, "", takeover.FoundNotApplied()},
		"Gone":        {410, "", takeover.FoundNotApplied()},
		"Down":        {503, "", takeover.FoundPending(0)},
		"Redirect":    {302, "", takeover.Finding{}},
		"Forbidden":   {403, "", takeover.Finding{}},
		"PartOfIt":    {206, "i", takeover.Finding{}},
		"NotModified": {304, "", takeover.Finding{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := find(t, record, func(w http.ResponseWriter, r *http.Request) {
				if want := "/orders/a%2Fb%20c%3F?key=k%26k&realm=r"; r.URL.RequestURI() != want || r.Header.Get("Authorization") != "us" {
					t.Errorf("asked %s as %q, want %s", r.URL.RequestURI(), r.Header.Get("Authorization"), want)
				}
				w.Header().Set("Location", "/elsewhere")
				w.Header().Del("Location")
				w.Header().Set("Content-Type", "x/y")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			if err != nil {
				t.Fatal(err)
			}
			if says := got.Reason != ""; says == (got.Kind == takeover.Applied || got.Kind == takeover.NotApplied) {
				t.Errorf("%s because of %q", got.Kind, got.Reason)
			}
			got.Reason = ""
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("NoAnswerIsNoFinding", func(t *testing.T) {
		t.Parallel()
		if got, err := find(t, record, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }); err == nil {
			t.Errorf("found %v", got)
		}
	})
}

func TestReconcileDefaults(t *testing.T) {
	t.Parallel()
	get := Route{Timeout: 5 * time.Second, Reconcile: Reconcile{Get: "http://a/{resource}"}}.withDefaults(Config{})
	if get.Settle != 5*time.Second || get.Reconcile.CreatedStatus != 201 {
		t.Errorf("get settles after %s as %d", get.Settle, get.Reconcile.CreatedStatus)
	}
	again := Route{Reconcile: Reconcile{Reexecute: true}}.withDefaults(Config{})
	if again.Settle != 0 || newReconciler(again, nil) == nil || newReconciler(Route{}, nil) != nil {
		t.Errorf("reexecute settles after %s", again.Settle)
	}
}
