package records_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/probate-dev/probate/records"
)

// The expected values were computed with Python's hashlib, not with the code
// under test:
//
//	part = lambda s: len(s).to_bytes(8, "big") + s
//	sha256(b"".join(map(part, [b"probate/record/v1", realm, principal, key]))).hexdigest()
func TestID(t *testing.T) {
	t.Run("IsTheHashOfItsLengthFramedParts", func(t *testing.T) {
		for _, c := range []struct {
			key  records.Key
			want string
		}{
			{records.Key{Realm: "", Principal: "", Key: ""}, "5eb0392fcf8ed3ab8177dad9883016e2e6b78409249ff5c8e54bb3f10dc0b77b"},
			{records.Key{Realm: "tenant", Principal: "user-1", Key: "8e03978e-40d5-43e8-bc93-6894a57f9324"}, "e2ed466938442952366a03c2488f8094b11578a59c0d14114c43b8c4c51bae3c"},
			{records.Key{Realm: "a\x00b", Principal: "\xff\xfe", Key: "k\xc3\xa9y"}, "fdca1bc85d395e9dba15c2453b8c1f414a8620e5587acf0f1335127c5a87cbbb"},
			{records.Key{Key: strings.Repeat("k", 3000)}, "105250efd12f81160bd0c4082d8eae4b54b823e84550eb512f10a83804d15cd6"},
		} {
			if got := c.key.ID().String(); got != c.want {
				t.Errorf("id of %q = %s, want %s", c.key, got, c.want)
			}
		}
	})
	t.Run("MovesWithEveryBoundaryBetweenParts", func(t *testing.T) {
		seen := make(map[records.ID]records.Key)
		for _, k := range []records.Key{
			{Realm: "abc"},
			{Principal: "abc"},
			{Key: "abc"},
			{Realm: "a", Principal: "bc"},
			{Realm: "ab", Principal: "c"},
			{Realm: "a", Key: "bc"},
			{Realm: "a", Principal: "b", Key: "c"},
			{Realm: "abc", Key: "\x00"},
			{},
		} {
			if other, ok := seen[k.ID()]; ok {
				t.Errorf("%q and %q share an id", k, other)
			}
			seen[k.ID()] = k
		}
	})
	t.Run("IsNeverAFingerprint", func(t *testing.T) {
		id := records.Key{Realm: "a", Principal: "b", Key: "c"}.ID()
		if records.Fingerprint(id) == records.FingerprintOf("a", "b", "c") {
			t.Error("the two kinds of hash share a domain")
		}
	})
	t.Run("OrdersByItsBytes", func(t *testing.T) {
		low, high := records.ID{0, 255}, records.ID{1}
		if low.Compare(high) != -1 || high.Compare(low) != 1 || low.Compare(low) != 0 {
			t.Errorf("compare: %d, %d, %d", low.Compare(high), high.Compare(low), low.Compare(low))
		}
	})
}

func TestFingerprintOf(t *testing.T) {
	for _, c := range []struct {
		parts []string
		want  string
	}{
		{nil, "f56b671b46608afcfa08f4ad73e5782e875f52390b80b0cd9728da2e5de09eb7"},
		{[]string{""}, "2d790afaac43f66f22cfd557d5d22b973ddb7a87096f7ccb0c3239e9a1de680b"},
		{[]string{"POST", "/orders", "{}"}, "b37606e1aff5be53eea3a68de5a86f3184423503e002989045768500c06122a7"},
		{[]string{"\x00", "\xff"}, "bbb7be9eda48a59063de6fa0d520bd877ff7126f08f98bcd0ece50ec311f956c"},
	} {
		if got := records.ID(records.FingerprintOf(c.parts...)).String(); got != c.want {
			t.Errorf("fingerprint of %q = %s, want %s", c.parts, got, c.want)
		}
	}
}

func TestParseID(t *testing.T) {
	id := records.Key{Realm: "realm", Principal: "principal", Key: "key"}.ID()
	t.Run("ReadsWhatStringWrites", func(t *testing.T) {
		if got, err := records.ParseID(id.String()); err != nil || got != id {
			t.Errorf("ParseID(%s) = %s, %v", id, got, err)
		}
	})
	t.Run("RefusesEverythingElse", func(t *testing.T) {
		s := id.String()
		for _, bad := range []string{
			"", s[1:], s + "0", s + "00", s[:62], strings.ToUpper(s), " " + s[1:], s[:63] + "g", s[:63] + "\n",
			"0x" + s[2:], strings.Repeat("é", 32), s[:32] + "\x00" + s[33:],
		} {
			if got, err := records.ParseID(bad); !errors.Is(err, records.ErrInvalid) || got != (records.ID{}) {
				t.Errorf("ParseID(%q) = %s, %v, want ErrInvalid", bad, got, err)
			}
		}
	})
}

func FuzzParseID(f *testing.F) {
	f.Add(strings.Repeat("0f", 32))
	f.Add(strings.Repeat("0F", 32))
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := records.ParseID(s)
		if err == nil && id.String() != s {
			t.Errorf("%q was read as %s", s, id)
		}
		if err != nil && !errors.Is(err, records.ErrInvalid) {
			t.Errorf("ParseID(%q): %v, want ErrInvalid", s, err)
		}
	})
}

// FuzzKey: two keys share an id only if they are the same.
func FuzzKey(f *testing.F) {
	f.Add("a", "b", "c", "ab", "", "c")
	f.Add("", "", "", "\x00", "", "")
	f.Fuzz(func(t *testing.T, r1, p1, k1, r2, p2, k2 string) {
		one := records.Key{Realm: r1, Principal: p1, Key: k1}
		two := records.Key{Realm: r2, Principal: p2, Key: k2}
		if (one == two) != (one.ID() == two.ID()) {
			t.Errorf("%q has id %s, %q has %s", one, one.ID(), two, two.ID())
		}
		same := slices.Equal([]string{r1, p1, k1}, []string{r2, p2, k2})
		if same != (records.FingerprintOf(r1, p1, k1) == records.FingerprintOf(r2, p2, k2)) {
			t.Errorf("fingerprints of %q and %q", one, two)
		}
	})
}

func TestToken(t *testing.T) {
	seen := make(map[records.Token]bool)
	for range 1000 {
		token := records.NewToken()
		if token == (records.Token{}) || seen[token] {
			t.Fatalf("token %x came twice or is zero", token)
		}
		seen[token] = true
	}
}

func TestFence(t *testing.T) {
	r := records.Record{Executor: records.ExecutorID{0xab}, Epoch: 42}
	if got, want := r.Fence().String(), "ab000000-0000-0000-0000-000000000000@42"; got != want {
		t.Errorf("fence = %s, want %s", got, want)
	}
}
