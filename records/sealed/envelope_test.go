package sealed

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"testing"

	"github.com/probate-dev/probate/records"
)

// ring makes keys of these ids, the same key for the same id.
func ring(t testing.TB, ids ...string) Keys {
	t.Helper()
	var text bytes.Buffer
	for _, id := range ids {
		secret := bytes.Repeat([]byte(id+"."), 32)[:32]
		fmt.Fprintf(&text, "%s:%s\n", id, base64.StdEncoding.EncodeToString(secret))
	}
	k, err := ParseKeys(text.String())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func body(key string, epoch int64) bond {
	return bond{purposeBody, records.Key{Key: key}.ID(), epoch}
}

func TestEnvelope(t *testing.T) {
	t.Parallel()
	random := make([]byte, 10<<10)
	rand.Read(random)
	values := map[string][]byte{
		"Null": nil, "Empty": {}, "OneByte": {0}, "Text": []byte("hello"), "Random": random,
		"TheMagic": []byte(magic), "ALikeOpenOne": []byte(magic + "ox"), "ALikeSealedOne": []byte(magic + "s\x01axxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
		"TheMagicCutShort": []byte(magic[:15]),
	}
	for name, value := range values {
		for keys, k := range map[string]Keys{"Sealed": ring(t, "a", "b"), "Open": {}} {
			t.Run(name+keys+"ComesBackAsItWas", func(t *testing.T) {
				t.Parallel()
				for _, n := range []nonce{randomNonce, derivedNonce} {
					stored := k.sealed(body("k", 7), value, n)
					got, err := k.open(body("k", 7), stored)
					if err != nil || !bytes.Equal(got, value) || (got == nil) != (value == nil) {
						t.Errorf("came back as %.40q, %v", got, err)
					}
					if len(stored) > len(value)+overhead {
						t.Errorf("%d bytes more", len(stored)-len(value))
					}
					if keys == "Sealed" && len(value) > 4 && bytes.Contains(stored[len(magic):], value) {
						t.Error("it is not sealed")
					}
				}
			})
		}
	}

	t.Run("WithoutKeysNothingIsCopied", func(t *testing.T) {
		t.Parallel()
		stored := Keys{}.sealed(body("k", 1), random, randomNonce)
		got, err := Keys{}.open(body("k", 1), stored)
		if err != nil || &stored[0] != &random[0] || &got[0] != &random[0] {
			t.Error("the bytes were copied")
		}
	})
	t.Run("EverySealIsAnother", func(t *testing.T) {
		t.Parallel()
		k := ring(t, "a")
		if bytes.Equal(k.sealed(body("k", 1), []byte("x"), randomNonce), k.sealed(body("k", 1), []byte("x"), randomNonce)) {
			t.Error("one value was sealed twice to the same bytes")
		}
	})
	t.Run("ADerivedNonceIsTheSameForARepeatOnly", func(t *testing.T) {
		t.Parallel()
		seal := func(id string, b bond, value string) string {
			return string(ring(t, id).sealed(b, []byte(value), derivedNonce))
		}
		one := seal("a", body("k", 1), "x")
		if seal("a", body("k", 1), "x") != one {
			t.Error("a repeat is sealed to other bytes")
		}
		nonces := map[string]bool{}
		for _, s := range []string{one, seal("b", body("k", 1), "x"), seal("a", body("l", 1), "x"), seal("a", body("k", 2), "x"), seal("a", body("k", 1), "y")} {
			nonces[s[len(magic)+3:][:24]] = true
		}
		if len(nonces) != 5 {
			t.Errorf("five values have %d nonces", len(nonces))
		}
	})
	t.Run("BehindADashKeysOnlyOpen", func(t *testing.T) {
		t.Parallel()
		resting := ring(t, "a")
		resting.rest = true
		value := []byte("x")
		if stored := resting.sealed(body("k", 1), value, randomNonce); &stored[0] != &value[0] || resting.Seals() {
			t.Errorf("stored as %q", stored)
		}
		if got, err := resting.open(body("k", 1), ring(t, "a").sealed(body("k", 1), value, randomNonce)); err != nil || string(got) != "x" {
			t.Errorf("opened as %q, %v", got, err)
		}
	})
	t.Run("TheFirstKeySealsAndAllOpen", func(t *testing.T) {
		t.Parallel()
		stored := ring(t, "old").sealed(body("k", 1), []byte("x"), randomNonce)
		for name, k := range map[string]Keys{"second": ring(t, "new", "old"), "first": ring(t, "old", "new")} {
			if got, err := k.open(body("k", 1), stored); err != nil || string(got) != "x" {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		if _, err := ring(t, "old").open(body("k", 1), ring(t, "new", "old").sealed(body("k", 1), []byte("x"), randomNonce)); !errors.Is(err, errUnknownKey) {
			t.Errorf("sealed with the second key, or: %v", err)
		}
	})
}

func TestOpen(t *testing.T) {
	t.Parallel()
	k := ring(t, "a")
	stored := k.sealed(body("k", 7), []byte("a body"), randomNonce)
	request := bond{purpose: purposeRequest, id: body("k", 0).id}
	same := Keys{ring: []key{{id: "a", aead: ring(t, "other").ring[0].aead}}}
	for name, c := range map[string]struct {
		keys   Keys
		bond   bond
		stored []byte
		want   error
	}{
		"RefusesAnotherRecord":     {k, body("l", 7), stored, errAltered},
		"RefusesAnotherEpoch":      {k, body("k", 8), stored, errAltered},
		"RefusesAnotherPurpose":    {k, request, k.sealed(body("k", 0), []byte("x"), randomNonce), errAltered},
		"RefusesAnotherKeyOfTheId": {same, body("k", 7), stored, errAltered},
		"NamesAMissingKey":         {ring(t, "b"), body("k", 7), stored, errUnknownKey},
		"NamesMissingKeys":         {Keys{}, body("k", 7), stored, errNoKeys},
		"RefusesAMarkWithoutNeed":  {Keys{}, body("k", 7), []byte(magic + "orest"), errMalformed},
		"RefusesAnotherKind":       {k, body("k", 7), []byte(magic + "trest"), errMalformed},
		"RefusesAnEmptyKeyId":      {k, body("k", 7), append([]byte(magic+"s\x00"), make([]byte, 80)...), errMalformed},
		"RefusesAKeyIdThatIsNone":  {Keys{}, body("k", 7), append([]byte(magic+"s\x02\n\n"), make([]byte, 80)...), errMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := c.keys.open(c.bond, c.stored); !errors.Is(err, c.want) || got != nil {
				t.Errorf("%q, %v; want %v", got, err, c.want)
			}
		})
	}
	t.Run("RefusesEveryShorterOne", func(t *testing.T) {
		t.Parallel()
		for n := len(magic); n < len(stored); n++ {
			if got, err := k.open(body("k", 7), stored[:n]); err == nil || got != nil {
				t.Errorf("%d of %d bytes were opened: %q", n, len(stored), got)
			}
		}
	})
	t.Run("RefusesEveryFlippedBitBehindTheMagic", func(t *testing.T) {
		t.Parallel()
		for i := len(magic); i < len(stored); i++ {
			for bit := range 8 {
				altered := bytes.Clone(stored)
				altered[i] ^= 1 << bit
				if got, err := k.open(body("k", 7), altered); err == nil || got != nil {
					t.Errorf("byte %d, bit %d: opened as %q", i, bit, got)
				}
			}
		}
	})
}

func FuzzOpen(f *testing.F) {
	k := ring(f, "a", "b")
	for _, value := range []string{"", "x", magic, magic + "o", magic + "s", magic + "s\xff", magic + "o" + magic} {
		f.Add([]byte(value))
		f.Add(k.sealed(body("k", 7), []byte(value), randomNonce))
		f.Add(Keys{}.sealed(body("k", 7), []byte(value), randomNonce))
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		for _, keys := range []Keys{k, {}} {
			before := bytes.Clone(stored)
			got, err := keys.open(body("k", 7), stored)
			if !bytes.Equal(stored, before) {
				t.Fatal("what was read was changed")
			}
			switch {
			case err != nil && got != nil:
				t.Fatalf("%q beside %v", got, err)
			case err == nil && len(got) > len(stored):
				t.Fatalf("%d bytes became %d", len(stored), len(got))
			case err == nil && !bytes.HasPrefix(stored, []byte(magic)) && !bytes.Equal(got, stored):
				t.Fatal("an open value was changed")
			}
			// Whatever is stored anew comes back.
			again, err := keys.open(body("k", 7), keys.sealed(body("k", 7), stored, derivedNonce))
			if err != nil || !bytes.Equal(again, stored) {
				t.Fatalf("%q came back as %q, %v", stored, again, err)
			}
		}
	})
}
