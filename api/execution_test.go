package api

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// TestExecution_Outcome: what a handler's own transaction stores is what the
// route would have stored.
func TestExecution_Outcome(t *testing.T) {
	t.Parallel()
	answer := records.Response{
		Status: 201, Body: []byte("paid"),
		Headers: []records.Header{
			{Name: "location", Value: "/payments/1"},
			{Name: "Set-Cookie", Value: "no"},
			{Name: "Link", Value: "<a>"},
			{Name: "link", Value: "<b>"},
			{Name: "Content-Length", Value: "9"},
		},
	}
	kept := []records.Header{{Name: "Link", Value: "<a>"}, {Name: "Link", Value: "<b>"}, {Name: "Location", Value: "/payments/1"}}
	for name, c := range map[string]struct {
		route Route
		body  string
		want  records.Response
	}{
		"AllOfIt":         {Route{MaxResponseBytes: 4}, "paid", records.Response{Status: 201, Headers: kept, Body: []byte("paid")}},
		"AnEmptyBody":     {Route{MaxResponseBytes: 4}, "", records.Response{Status: 201, Headers: kept, Body: []byte{}}},
		"NoSecret":        {Route{MaxResponseBytes: 4, SecretResponse: true}, "paid", records.Response{Status: 201, Headers: kept[2:]}},
		"NotWhatRedacted": {Route{MaxResponseBytes: 4, Redact: []string{"Link"}}, "paid", records.Response{Status: 201, Headers: kept[2:], Body: []byte("paid")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.route.Retention = time.Hour
			e := &Execution{&run{x: &exchange{e: &endpoint{route: c.route}}}}
			with := answer
			with.Body = nil
			if c.body != "" {
				with.Body = []byte(c.body)
			}
			if diff := cmp.Diff(records.Outcome{Response: c.want, Retention: time.Hour}, e.Outcome(with)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("NothingOfWhatWasErased", func(t *testing.T) {
		t.Parallel()
		e := &Execution{&run{x: &exchange{e: &endpoint{route: Route{MaxResponseBytes: 4}}}, claim: takeover.Claim{Erased: true}}}
		if diff := cmp.Diff(records.Outcome{Response: records.Response{Status: 201}}, e.Outcome(answer)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("NotTooMuch", func(t *testing.T) {
		t.Parallel()
		e := &Execution{&run{x: &exchange{e: &endpoint{route: Route{MaxResponseBytes: 4}}}}}
		o := e.Outcome(records.Response{Status: 200, Body: []byte(strings.Repeat("x", 5))})
		if o.Response.Body != nil || len(o.Response.Headers) != 2 {
			t.Errorf("stores %+v", o.Response)
		}
	})
}
