package api

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// TestBlanks: a template is filled with what the record or the request says,
// escaped for where it stands, or nobody can tell.
func TestBlanks(t *testing.T) {
	t.Parallel()
	o := newOutside(slog.New(slog.DiscardHandler))
	t.Cleanup(o.transport.CloseIdleConnections)
	body := `{"customer": {"id": "c/1 ?#%&ü", "no": 1.50, "vip": true, "tags": ["a", "b"], "a/b": "slash", "x": null, "e": "", "up": ".."}}`
	record := records.Record{Operation: "pay", Resource: "a/b", Realm: "eu+west", Key: "k=1"}
	for name, c := range map[string]struct {
		template string
		body     string // default: the one above
		absent   bool   // the request is not at hand
		asks     string // the target; "": nobody is asked
		because  string
	}{
		"TheRecordsNames":      {template: "/{operation}/{resource}?realm={realm}&key={key}", absent: true, asks: "/pay/a%2Fb?realm=eu%2Bwest&key=k%3D1"},
		"TheRecordsID":         {template: "/{operation_ref}", absent: true, asks: "/" + record.ID.String()},
		"APathParameter":       {template: "/orders/{path:id}", asks: "/orders/7%2F8%20x"},
		"AStringInThePath":     {template: "/c/{json:/customer/id}/x", asks: "/c/c%2F1%20%3F%23%25%26%C3%BC/x"},
		"AStringInTheQuery":    {template: "/c?id={json:/customer/id}", asks: "/c?id=c%2F1%20%3F%23%25%26%C3%BC"},
		"ANumberAsItIsSpelled": {template: "/c/{json:/customer/no}", asks: "/c/1.50"},
		"ABoolean":             {template: "/c/{json:/customer/vip}", asks: "/c/true"},
		"AnElement":            {template: "/c/{json:/customer/tags/1}", asks: "/c/b"},
		"AnEscapedPointer":     {template: "/c/{json:/customer/a~1b}", asks: "/c/slash"},
		"NotWithoutTheRequest": {template: "/c/{json:/customer/id}", absent: true, because: "not at hand"},
		"NotWithoutThePath":    {template: "/c/{path:id}", absent: true, because: "not at hand"},
		"NotAnAbsentMember":    {template: "/c/{json:/customer/name}", because: "no string, number or boolean"},
		"NotANull":             {template: "/c/{json:/customer/x}", because: "no string, number or boolean"},
		"NotAnObject":          {template: "/c/{json:/customer}", because: "no string, number or boolean"},
		"NotBeyondAnArray":     {template: "/c/{json:/customer/tags/2}", because: "no string, number or boolean"},
		"NotAStrangeIndex":     {template: "/c/{json:/customer/tags/01}", because: "no string, number or boolean"},
		"NotThroughAString":    {template: "/c/{json:/customer/id/x}", because: "no string, number or boolean"},
		"NotAnEmptyString":     {template: "/c/{json:/customer/e}", because: "{json:/customer/e} is empty"},
		"NotTheWayUp":          {template: "/c/{json:/customer/up}", because: "leads elsewhere"},
		"NotTheWayUpInParts":   {template: "/c/.{json:/a}", body: `{"a": "."}`, because: "elsewhere"},
		"NotTheWayUpWithin":    {template: "/c/{json:/a}", body: `{"a": "x\\\\..\\\\y"}`, because: "leads elsewhere"},
		"NotWhatIsNoJSON":      {template: "/c/{json:/a}", body: `a=1`, because: "no JSON"},
		"NotWhatIsEmpty":       {template: "/c/{json:/a}", body: ` `, because: "no JSON"},
		"NotWhatFollows":       {template: "/c/{json:/a}", body: `{"a": 1} {"a": 2}`, because: "no JSON"},
		"NotWhatIsSaidTwice":   {template: "/c/{json:/a}", body: `{"a": 1, "a": 2}`, because: "no JSON"},
		"NotWhatNestsTooDeep":  {template: "/c/{json:/a}", body: strings.Repeat("[", 1000), because: "no JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := make(chan string, 1)
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.URL.RequestURI() }))
			t.Cleanup(server.Close)
			setDefault(&c.body, body)
			r := Route{Operation: "pay", Path: "/orders/{id}", Reconcile: Reconcile{Get: server.URL + c.template}.withDefaults(), MaxResponseBytes: 10}
			var f faults
			r.Reconcile.validate(f.at(""), r)
			if err := f.join(); err != nil {
				t.Fatal(err)
			}
			reconciler := newReconciler(r, o)
			if !c.absent {
				req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/7", nil)
				req.SetPathValue("id", "7/8 x")
				reconciler = reconciler.(*look).with(&exchange{r: req, body: []byte(c.body)})
			}
			found, err := reconciler.Reconcile(t.Context(), record, takeover.Request{})
			if err != nil {
				t.Fatal(err)
			}
			close(got)
			if asks := <-got; asks != c.asks {
				t.Errorf("asks %q, want %q", asks, c.asks)
			}
			if want := c.asks == ""; want != (found.Kind == takeover.Undecidable) || !strings.Contains(found.Reason, c.because) {
				t.Errorf("found %s: %q", found.Kind, found.Reason)
			}
		})
	}
	t.Run("AnEmptyNameIsMissing", func(t *testing.T) {
		t.Parallel()
		l := &look{config: Reconcile{Get: "http://127.0.0.1:1/orders/{resource}"}, outside: o}
		found, err := l.Reconcile(t.Context(), records.Record{}, takeover.Request{})
		if err != nil || found.Kind != takeover.Undecidable || found.Reason != "look: {resource} is empty" {
			t.Errorf("found %+v, %v", found, err)
		}
	})
}

// TestLook_Original: what a look finds becomes the response of what made it.
func TestLook_Original(t *testing.T) {
	t.Parallel()
	o := newOutside(slog.New(slog.DiscardHandler))
	t.Cleanup(o.transport.CloseIdleConnections)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Etag", `"1"`)
		_, _ = io.WriteString(w, "it")
	}))
	t.Cleanup(server.Close)
	for name, c := range map[string]struct {
		config Reconcile
		want   records.Response
	}{
		"WithALocation": {
			Reconcile{ResponseHeaders: map[string]string{"location": "/orders/{resource}"}},
			records.Response{
				Status: 201, Body: []byte("it"),
				Headers: []records.Header{{Name: "Content-Type", Value: "text/plain"}, {Name: "Etag", Value: `"1"`}, {Name: "Location", Value: "/orders/7%2F8"}},
			},
		},
		"WithoutABody": {
			Reconcile{CreatedStatus: 204},
			records.Response{Status: 204, Body: []byte{}, Headers: []records.Header{{Name: "Etag", Value: `"1"`}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.config.Get = server.URL
			r := Route{Reconcile: c.config.withDefaults(), MaxResponseBytes: 10}
			found, err := newReconciler(r, o).Reconcile(t.Context(), records.Record{Resource: "7/8"}, takeover.Request{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(takeover.FoundApplied(c.want), found); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLook_Refuses what cannot be a template, at the start.
func TestLook_Refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config  Reconcile
		ignores []string
		at      string
	}{
		"AnUnknownBlank":       {config: Reconcile{Get: "http://a/{id}"}, at: "get"},
		"AParameterOfNoPath":   {config: Reconcile{Get: "http://a/{path:customer}"}, at: "get"},
		"NoPointer":            {config: Reconcile{Get: "http://a/{json:id}"}, at: "get"},
		"ManyPlaces":           {config: Reconcile{Get: "http://a/{json:/*/id}"}, at: "get"},
		"AHostOfTheClients":    {config: Reconcile{Get: "http://{json:/host}/"}, at: "get"},
		"AFragment":            {config: Reconcile{Get: "http://a/x#"}, at: "get"},
		"TheWayUp":             {config: Reconcile{Get: "http://a/x/../{resource}"}, at: "get"},
		"AHeaderThatIsNone":    {config: Reconcile{Get: "http://a/x", ResponseHeaders: map[string]string{"a b": "x"}}, at: "response_headers"},
		"AHeaderNeverStored":   {config: Reconcile{Get: "http://a/x", ResponseHeaders: map[string]string{"set-cookie": "x"}}, at: "response_headers"},
		"HeadersWithoutGet":    {config: Reconcile{URL: "http://a/x", ResponseHeaders: map[string]string{"location": "x"}}, at: "response_headers"},
		"AHeadersBlank":        {config: Reconcile{Get: "http://a/x", ResponseHeaders: map[string]string{"location": "/{id}"}}, at: "response_headers"},
		"WhatDuplicatesIgnore": {config: Reconcile{Get: "http://a/{json:/items/0/id}"}, ignores: []string{"/items/*"}, at: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Route{Path: "/orders/{id:[0-9]+}", Fingerprint: FingerprintOptions{IgnoreJSON: c.ignores}, Reconcile: c.config.withDefaults()}
			var f faults
			r.Reconcile.validate(f.at(""), r)
			err := f.join()
			if err == nil || !strings.Contains(err.Error(), c.at) {
				t.Errorf("error = %v, want one at %q", err, c.at)
			}
		})
	}
}
