package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

func TestProblem(t *testing.T) {
	t.Parallel()
	t.Run("EveryKindIsWhole", func(t *testing.T) {
		t.Parallel()
		for c, k := range kinds {
			if k.status < 400 || k.title == "" || k.stripe == "" || k.iceberg == "" {
				t.Errorf("%s: %+v", c, k)
			}
			if k.retryable != (k.retryAfter > 0) && k.status == 503 {
				t.Errorf("%s: 503 says when to come back", c)
			}
		}
	})
	t.Run("IcebergNeverTakesAnOpenOutcomeForAFailedCommit", func(t *testing.T) {
		t.Parallel()
		for c := range kinds {
			if s := profiles[ProfileIceberg].status(c); s == 409 {
				t.Errorf("%s is %d", c, s)
			}
		}
	})
	t.Run("ErrorsHaveTheirCode", func(t *testing.T) {
		t.Parallel()
		for err, want := range map[error]code{
			takeover.ErrNotServing:                                 codeStoreUnavailable,
			fmt.Errorf("reserve: %w", records.ErrUnavailable):      codeStoreUnavailable,
			&records.InvalidError{Field: "key", Reason: "strange"}: codeRequestInvalid,
			errors.New("surprise"):                                 codeInternal,
		} {
			if got := problemOf(err).code; got != want {
				t.Errorf("%v is %s, want %s", err, got, want)
			}
		}
	})
}

func TestProfile(t *testing.T) {
	t.Parallel()
	id := records.Key{Key: "k"}.ID()
	for name, c := range map[string]struct {
		profile Profile
		p       problem
		status  int
		headers map[string]string
		body    string
	}{
		"IETF": {
			ProfileIETF,
			problem{code: codeInProgress, record: id, retryAfter: 3},
			409,
			map[string]string{"Content-Type": "application/problem+json", "Retry-After": "3", "Cache-Control": "no-store"},
			`{"type":"urn:x:operation_in_progress","title":"The operation is still running","status":409,` +
				`"detail":"A request with this key is being executed. Ask again with the same key.","instance":"urn:probate:record:` + id.String() + `",` +
				`"code":"operation_in_progress","retryable":true,"same_key":true,"retry_after":3,"operation_ref":"` + id.String() + `"}`,
		},
		"StripeInUse": {
			ProfileStripe,
			problem{code: codeInProgress},
			409,
			map[string]string{"Content-Type": "application/json", "Stripe-Should-Retry": "true"},
			`{"error":{"type":"invalid_request_error","code":"idempotency_key_in_use","message":"A request with this key is being executed. Ask again with the same key."}}`,
		},
		"StripeReused": {
			ProfileStripe,
			problem{code: codeKeyReused, detail: "d"},
			400,
			map[string]string{"Stripe-Should-Retry": "false"},
			`{"error":{"type":"idempotency_error","code":"idempotency_error","message":"d"}}`,
		},
		"IcebergInProgress": {
			ProfileIceberg,
			problem{code: codeInProgress, detail: "d"},
			503,
			map[string]string{"Retry-After": "1"},
			`{"error":{"message":"d","type":"ServiceUnavailableException","code":503}}`,
		},
		"IcebergUnknown": {
			ProfileIceberg,
			problem{code: codeOutcomeUnknown, detail: "d"},
			500,
			map[string]string{"Retry-After": ""},
			`{"error":{"message":"d","type":"CommitStateUnknownException","code":500}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			writeProblem(w, c.profile, "urn:x:", c.p)
			if w.Code != c.status || w.Body.String() != c.body {
				t.Errorf("%d %s\nwant %d %s", w.Code, w.Body, c.status, c.body)
			}
			for name, value := range c.headers {
				if got := w.Header().Get(name); got != value {
					t.Errorf("%s = %q, want %q", name, got, value)
				}
			}
		})
	}
}

// FuzzProblem: any text in a problem makes valid JSON, in every profile.
func FuzzProblem(f *testing.F) {
	f.Add("detail", "/location", "sha-256=:x:", int64(3))
	f.Add("\x00\xff\"\\", "\u2028", "", int64(-1))
	f.Fuzz(func(t *testing.T, detail, location, digest string, size int64) {
		stored := &records.Response{Status: 201, Headers: []records.Header{
			{Name: "Location", Value: location}, {Name: headerDigest, Value: digest}, {Name: "Content-Length", Value: fmt.Sprint(size)},
		}}
		for profile := range profiles {
			w := httptest.NewRecorder()
			writeProblem(w, profile, "urn:x:", problem{code: codeNotReplayable, detail: detail, stored: stored})
			if !json.Valid(w.Body.Bytes()) {
				t.Fatalf("%s: %q", profile, w.Body)
			}
		}
	})
}

func TestISODuration(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"PT0S": 0, "PT30M": 30 * time.Minute, "PT24H": 24 * time.Hour, "PT720H": 30 * 24 * time.Hour,
		"PT1M30S": 90*time.Second + time.Millisecond, "PT1H1S": time.Hour + time.Second,
	} {
		if got := ISODuration(d); got != want {
			t.Errorf("ISODuration(%s) = %s, want %s", d, got, want)
		}
	}
}
