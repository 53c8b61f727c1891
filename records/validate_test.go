package records_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
)

// wantFields demands that err blames exactly the given fields, in order.
func wantFields(t *testing.T, err error, want ...string) {
	t.Helper()
	faults := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		faults = joined.Unwrap()
	}
	var got []string
	for _, fault := range faults {
		if invalid, ok := errors.AsType[*records.InvalidError](fault); ok {
			got = append(got, invalid.Field)
		}
	}
	if !slices.Equal(got, want) || len(want) > 0 && !errors.Is(err, records.ErrInvalid) {
		t.Errorf("%v blames %q, want %q", err, got, want)
	}
}

func TestReservation(t *testing.T) {
	good := records.Reservation{ID: records.ID{1}, Attempt: records.Token{1}}
	most := strings.Repeat("\x00", records.MaxFieldBytes)
	t.Run("AcceptsAnyBytesUpToTheLimit", func(t *testing.T) {
		r := good
		wantFields(t, r.Validate())
		r.Realm, r.Key, r.Operation, r.Resource = most, most, most, most
		r.Request = make([]byte, records.MaxRequestBytes)
		wantFields(t, r.Validate())
	})
	t.Run("NamesTheFaultyField", func(t *testing.T) {
		for field, change := range map[string]func(*records.Reservation){
			"record id": func(r *records.Reservation) { r.ID = records.ID{} },
			"attempt":   func(r *records.Reservation) { r.Attempt = records.Token{} },
			"realm":     func(r *records.Reservation) { r.Realm = most + "x" },
			"key":       func(r *records.Reservation) { r.Key = most + "x" },
			"operation": func(r *records.Reservation) { r.Operation = most + "x" },
			"resource":  func(r *records.Reservation) { r.Resource = most + "x" },
			"request":   func(r *records.Reservation) { r.Request = make([]byte, records.MaxRequestBytes+1) },
		} {
			r := good
			change(&r)
			wantFields(t, r.Validate(), field)
		}
	})
	t.Run("NamesAllFaultsAtOnce", func(t *testing.T) {
		wantFields(t, records.Reservation{Key: most + "x"}.Validate(), "record id", "attempt", "key")
	})
}

func TestClaims(t *testing.T) {
	wantFields(t, records.TakeOver{ID: records.ID{1}, Attempt: records.Token{1}}.Validate())
	wantFields(t, records.TakeOver{ID: records.ID{1}}.Validate(), "attempt")
	wantFields(t, records.TakeOver{}.Validate(), "record id", "attempt")
	wantFields(t, records.UnknownClaim{ID: records.ID{1}, Attempt: records.Token{1}}.Validate())
	wantFields(t, records.UnknownClaim{Attempt: records.Token{1}}.Validate(), "record id")
	wantFields(t, records.UnknownClaim{}.Validate(), "record id", "attempt")
}

func TestOutcome(t *testing.T) {
	with := func(change func(*records.Outcome)) records.Outcome {
		o := records.Outcome{Response: records.Response{Status: 200}, Retention: time.Hour}
		change(&o)
		return o
	}
	// A header weighs its name, its value and one byte of length for each.
	fill := strings.Repeat("v", records.MaxHeaderBytes-3)
	t.Run("AcceptsUpToTheLimits", func(t *testing.T) {
		for _, o := range []records.Outcome{
			with(func(*records.Outcome) {}),
			with(func(o *records.Outcome) { o.Response.Status = 100 }),
			with(func(o *records.Outcome) { o.Response.Status = 599 }),
			with(func(o *records.Outcome) { o.Response.Headers = []records.Header{{Name: "X", Value: fill}} }),
			with(func(o *records.Outcome) { o.Response.Body = make([]byte, records.MaxBodyBytes) }),
			with(func(o *records.Outcome) { o.Retention = 0 }),
			with(func(o *records.Outcome) { o.Retention = 10 * 365 * 24 * time.Hour }),
		} {
			wantFields(t, o.Validate())
		}
	})
	t.Run("NamesTheFaultyField", func(t *testing.T) {
		wantFields(t, with(func(o *records.Outcome) { o.Response.Status = 99 }).Validate(), "status")
		wantFields(t, with(func(o *records.Outcome) { o.Response.Status = 600 }).Validate(), "status")
		wantFields(t, with(func(o *records.Outcome) { o.Response.Status = -1 }).Validate(), "status")
		wantFields(t, with(func(o *records.Outcome) {
			o.Response.Headers = []records.Header{{Name: "X", Value: fill + "v"}}
		}).Validate(), "headers")
		wantFields(t, with(func(o *records.Outcome) {
			o.Response.Headers = make([]records.Header, records.MaxHeaderBytes/2+1) // empty ones weigh too
		}).Validate(), "headers")
		wantFields(t, with(func(o *records.Outcome) { o.Response.Body = make([]byte, records.MaxBodyBytes+1) }).Validate(), "body")
		wantFields(t, with(func(o *records.Outcome) { o.Retention = -1 }).Validate(), "retention")
		wantFields(t, with(func(o *records.Outcome) { o.Retention = 10*365*24*time.Hour + 1 }).Validate(), "retention")
	})
}

func TestFilter(t *testing.T) {
	text := ""
	for _, f := range []records.Filter{
		{Limit: 1},
		{Limit: 1000, State: records.Unknown, Realm: &text, OlderThan: time.Hour},
	} {
		wantFields(t, f.Validate())
	}
	wantFields(t, records.Filter{}.Validate(), "limit")
	wantFields(t, records.Filter{Limit: 1001}.Validate(), "limit")
	wantFields(t, records.Filter{Limit: -1, State: "lost", OlderThan: -1}.Validate(), "limit", "state", "older than")
}

func TestValidateCluster(t *testing.T) {
	for _, good := range []string{"prod", "größer", strings.Repeat("c", 255)} {
		wantFields(t, records.ValidateCluster(good))
	}
	for _, bad := range []string{"", "\x00", "a\xffb", strings.Repeat("c", 256)} {
		wantFields(t, records.ValidateCluster(bad), "cluster")
	}
}

func TestValidateReason(t *testing.T) {
	for _, good := range []string{"", "connection refused", "größer", strings.Repeat("r", 1024)} {
		wantFields(t, records.ValidateReason(good))
	}
	for _, bad := range []string{"\x00", "a\xffb", strings.Repeat("r", 1025)} {
		wantFields(t, records.ValidateReason(bad), "reason")
	}
}
