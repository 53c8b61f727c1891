package records_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
)

func TestParseExecutorID(t *testing.T) {
	const text = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
	want := records.ExecutorID{0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x41, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8}
	t.Run("ReadsEitherCaseAndWritesLower", func(t *testing.T) {
		for _, s := range []string{text, strings.ToUpper(text)} {
			got, err := records.ParseExecutorID(s)
			if err != nil || got != want || got.String() != text {
				t.Errorf("ParseExecutorID(%s) = %s, %v", s, got, err)
			}
		}
	})
	t.Run("WritesEveryZero", func(t *testing.T) {
		if got := (records.ExecutorID{15: 1}).String(); got != "00000000-0000-0000-0000-000000000001" {
			t.Errorf("text form = %s", got)
		}
	})
	t.Run("RefusesEverythingElse", func(t *testing.T) {
		for _, bad := range []string{
			"", "1-1-1-1-1", strings.ReplaceAll(text, "-", ""), text + "0", text[1:], "{" + text + "}", "urn:uuid:" + text,
			"6ba7b8109-dad-41d1-80b4-00c04fd430c8", text[:35] + "g", text + "-", "-" + text, " " + text,
			strings.ReplaceAll(text, "-", "--"),
		} {
			if got, err := records.ParseExecutorID(bad); !errors.Is(err, records.ErrInvalid) || got != (records.ExecutorID{}) {
				t.Errorf("ParseExecutorID(%q) = %s, %v, want ErrInvalid", bad, got, err)
			}
		}
	})
}

func FuzzParseExecutorID(f *testing.F) {
	f.Add("6ba7b810-9dad-41d1-80b4-00c04fd430c8")
	f.Add("6BA7B8109DAD41D180B400C04FD430C8")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := records.ParseExecutorID(s)
		if err == nil && !strings.EqualFold(id.String(), s) {
			t.Errorf("%q was read as %s", s, id)
		}
		if err != nil && !errors.Is(err, records.ErrInvalid) {
			t.Errorf("ParseExecutorID(%q): %v, want ErrInvalid", s, err)
		}
	})
}

func TestExecutor(t *testing.T) {
	t.Run("IsStaleOnceItsLeaseRanOut", func(t *testing.T) {
		for _, age := range []time.Duration{-time.Second, 0, time.Second, time.Second + 1} {
			want := age > time.Second
			if got := (records.Executor{LeaseTTL: time.Second, HeartbeatAge: age}).Stale(); got != want {
				t.Errorf("stale at age %s: %t, want %t", age, got, want)
			}
		}
	})
	t.Run("IsAttestedWhileTheProofIsYoung", func(t *testing.T) {
		proven := records.Executor{AttestedAt: time.Unix(1, 0), AttestedAge: time.Second}
		if !proven.Attested(time.Second+1) || proven.Attested(time.Second) {
			t.Error("a proof of one second counts otherwise than for longer than one second")
		}
		proven.AttestedAge = -time.Hour
		if proven.Attested(time.Hour) {
			t.Error("a proof from an hour ahead counts")
		}
		if (records.Executor{}).Attested(time.Hour) {
			t.Error("without any proof it counts as attested")
		}
	})
}

func TestValidateExecutorURL(t *testing.T) {
	t.Run("AcceptsSchemeHostAndPort", func(t *testing.T) {
		for _, good := range []string{
			"http://node-1:8081", "https://node-1.probate.svc.cluster.local:8443", "http://127.0.0.1:1", "http://[::1]:8081",
			"http://node", "HTTP://node:8081", "http://[fe80::1%25eth0]:8081", "https://bücher.example:443",
		} {
			if err := records.ValidateExecutorURL(good); err != nil {
				t.Errorf("%s: %v", good, err)
			}
		}
	})
	t.Run("RefusesEverythingElse", func(t *testing.T) {
		for _, bad := range []string{
			"", "node:8081", "//node:8081", "/probe", "ftp://node", "file:///etc/passwd", "unix:///run/probate.sock",
			"http://", "http://:8081", "http:node", "http:///probe",
			"http://node:8081/", "http://node/probe", "http://node//", "http://node/..", "http://node/%2e",
			"http://node?", "http://node?a=b", "http://node#", "http://node#f", "http://node:8081?#",
			"http://user@node", "http://user:password@node", "http://@node", "http://:@node", "http://127.0.0.1@169.254.169.254",
			"http://node:port", "http://node:-1", "http://node:80:80", "http://[::1", "http://::1:80",
			"http://no de", "http://node\x00", "http://node\xff", "http://node\n", "http://node\t:80", " http://node", "http://node ",
			"http://node\\@evil", "http://%00node", "http://node/\u2044", "http://" + strings.Repeat("n", 2048), "javascript:alert(1)",
		} {
			if err := records.ValidateExecutorURL(bad); !errors.Is(err, records.ErrInvalid) {
				t.Errorf("%q: %v, want ErrInvalid", bad, err)
			}
		}
	})
}

// FuzzValidateExecutorURL: whatever passes holds nothing that could lead a
// request elsewhere than to its host and port.
func FuzzValidateExecutorURL(f *testing.F) {
	for _, s := range []string{"http://node:8081", "http://u@node", "http://node/path", "http://[::1]:80", "http://node?", "https://a#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := records.ValidateExecutorURL(s)
		if err != nil {
			if !errors.Is(err, records.ErrInvalid) {
				t.Errorf("%q: %v, want ErrInvalid", s, err)
			}
			return
		}
		_, rest, _ := strings.Cut(s, "//")
		if rest == "" || strings.ContainsAny(rest, "/@?#\\\x00\r\n") {
			t.Errorf("%q was accepted", s)
		}
	})
}

func TestRegistration(t *testing.T) {
	good := records.Registration{
		ID: records.ExecutorID{1}, Slot: "pod-0", URL: "http://pod-0:8081", PublicKey: make([]byte, 32),
		Policy: records.PolicyProbe, LeaseTTL: 15 * time.Second,
	}
	t.Run("AcceptsWhatABootSays", func(t *testing.T) {
		for _, change := range []func(*records.Registration){
			func(*records.Registration) {},
			func(r *records.Registration) { r.Policy = records.PolicyLease },
			func(r *records.Registration) { r.LeaseTTL = time.Millisecond },
			func(r *records.Registration) { r.LeaseTTL = 24 * time.Hour },
			func(r *records.Registration) { r.Slot = strings.Repeat("s", 255) },
			func(r *records.Registration) { r.Slot = "Straße 7:8081" },
			func(r *records.Registration) { r.Replaces = records.Sighting{Executor: records.ExecutorID{2}, Beat: 7} },
		} {
			r := good
			change(&r)
			if err := r.Validate(); err != nil {
				t.Errorf("%+v: %v", r, err)
			}
		}
	})
	t.Run("NamesTheFaultyField", func(t *testing.T) {
		for field, change := range map[string]func(*records.Registration){
			"id":           func(r *records.Registration) { r.ID = records.ExecutorID{} },
			"slot":         func(r *records.Registration) { r.Slot = "" },
			"slot ":        func(r *records.Registration) { r.Slot = strings.Repeat("s", 256) },
			"slot  ":       func(r *records.Registration) { r.Slot = "a\x00" },
			"slot   ":      func(r *records.Registration) { r.Slot = "\xff" },
			"public key":   func(r *records.Registration) { r.PublicKey = nil },
			"public key ":  func(r *records.Registration) { r.PublicKey = make([]byte, 64) },
			"policy":       func(r *records.Registration) { r.Policy = "" },
			"policy ":      func(r *records.Registration) { r.Policy = "Probe" },
			"lease ttl":    func(r *records.Registration) { r.LeaseTTL = time.Millisecond - 1 },
			"lease ttl ":   func(r *records.Registration) { r.LeaseTTL = 24*time.Hour + 1 },
			"executor url": func(r *records.Registration) { r.URL = "http://pod-0:8081/probe" },
		} {
			r := good
			change(&r)
			wantFields(t, r.Validate(), strings.TrimSpace(field))
		}
	})
	t.Run("NamesAllFaultsAtOnce", func(t *testing.T) {
		wantFields(t, records.Registration{}.Validate(), "id", "slot", "public key", "policy", "lease ttl", "executor url")
	})
}

func TestSlotTakenError(t *testing.T) {
	err := error(&records.SlotTakenError{Holder: records.Executor{Slot: "pod-0", URL: "http://pod-0:8081", HeartbeatAge: time.Second}})
	if !errors.Is(err, records.ErrSlotTaken) || errors.Is(err, records.ErrInvalid) {
		t.Errorf("%v matches the wrong sentinel", err)
	}
	for _, part := range []string{"pod-0", "http://pod-0:8081", "1s", records.ExecutorID{}.String()} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %s", err, part)
		}
	}
}
