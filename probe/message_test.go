package probe_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

var testKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

func testKeyOf(id records.ExecutorID) (ed25519.PublicKey, bool) {
	public, ok := testKey.Public().(ed25519.PublicKey)
	return public, ok && id == executorID(1)
}

func statement(change func(*probe.Statement)) probe.Statement {
	s := probe.Statement{
		Kind: probe.KindRecord, Cluster: "payments-eu", Executor: executorID(1), Slot: "node-1 \"α\"", Record: recordID(1),
		Epoch: 1 << 60, Nonce: probe.Nonce{1, 2, 3}, Answer: probe.AnswerRunning,
	}
	if change != nil {
		change(&s)
	}
	return s
}

func witnessStatement() probe.Statement {
	return statement(func(s *probe.Statement) {
		s.Kind, s.Answer, s.Record, s.Epoch = probe.KindWitness, "", records.ID{}, 0
		s.Suspect, s.Saw, s.SuspectAlive = executorID(2), probe.Down, false
	})
}

// enveloped is a message with a good signature over any payload.
func enveloped(t testing.TB, payload string) []byte {
	t.Helper()
	b, err := json.Marshal(map[string][]byte{"payload": []byte(payload), "sig": ed25519.Sign(testKey, []byte(payload))})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const goodPayload = `{"version":1,"kind":"record","cluster":"c","executor":"01000000-0000-0000-0000-000000000001","slot":"s",` +
	`"record":"0000000000000000000000000000000000000000000000000000000000000000","epoch":5,"nonce":"00000000000000000000000000000000","answer":"running"}`

func TestMessage(t *testing.T) {
	t.Parallel()

	t.Run("OpensWhatWasSigned", func(t *testing.T) {
		t.Parallel()
		for _, s := range []probe.Statement{
			statement(nil),
			statement(func(s *probe.Statement) { s.Answer, s.Proxied = probe.AnswerNotRunning, true }),
			statement(func(s *probe.Statement) { s.Answer, s.Cluster, s.Slot = probe.AnswerNotMe, "", "" }),
			witnessStatement(),
		} {
			b, err := probe.Sign(testKey, s)
			if err != nil {
				t.Fatal(err)
			}
			got, err := probe.Open(b, s.Kind, testKeyOf)
			if err != nil || got != s {
				t.Errorf("got %+v, %v, want %+v", got, err, s)
			}
		}
	})

	t.Run("HasTheDocumentedForm", func(t *testing.T) {
		t.Parallel()
		got, err := probe.Open(enveloped(t, goodPayload), probe.KindRecord, testKeyOf)
		if err != nil || got.Epoch != 5 || got.Answer != probe.AnswerRunning {
			t.Errorf("got %+v, %v", got, err)
		}
	})

	t.Run("EveryBitIsUnderTheSignature", func(t *testing.T) {
		t.Parallel()
		b, err := probe.Sign(testKey, statement(nil))
		if err != nil {
			t.Fatal(err)
		}
		for i := range b {
			for bit := range 8 {
				changed := bytes.Clone(b)
				changed[i] ^= 1 << bit
				// Base64 and JSON have more than one spelling for some bytes
				// (the letter case of a field's name): what counts is that no
				// other statement comes out.
				if got, err := probe.Open(changed, probe.KindRecord, testKeyOf); err == nil && got != statement(nil) {
					t.Fatalf("byte %d bit %d: %+v", i, bit, got)
				}
			}
		}
	})

	t.Run("RefusesToSign", func(t *testing.T) {
		t.Parallel()
		for name, s := range map[string]probe.Statement{
			"NoKind":      statement(func(s *probe.Statement) { s.Kind = "" }),
			"OtherKind":   statement(func(s *probe.Statement) { s.Kind = "fence" }),
			"NoAnswer":    statement(func(s *probe.Statement) { s.Answer = "" }),
			"OtherAnswer": statement(func(s *probe.Statement) { s.Answer = "down" }),
			"Oversize":    statement(func(s *probe.Statement) { s.Slot = strings.Repeat("x", probe.MaxMessage) }),
		} {
			if _, err := probe.Sign(testKey, s); !errors.Is(err, probe.ErrMalformed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := probe.Sign(nil, statement(nil)); err == nil {
			t.Error("without a key")
		}
	})

	t.Run("RefusesToOpen", func(t *testing.T) {
		t.Parallel()
		change := func(from, to string) []byte {
			changed := strings.Replace(goodPayload, from, to, 1)
			if changed == goodPayload {
				t.Fatalf("%s is not in the payload", from)
			}
			return enveloped(t, changed)
		}
		good := enveloped(t, goodPayload)
		for name, row := range map[string]struct {
			message []byte
			want    error
		}{
			"Nothing":            {nil, probe.ErrMalformed},
			"NotJSON":            {[]byte("hello"), probe.ErrMalformed},
			"AnotherObject":      {[]byte(`{"status":"ok"}`), probe.ErrMalformed},
			"AnArray":            {[]byte(`[]`), probe.ErrMalformed},
			"Null":               {[]byte(`null`), probe.ErrMalformed},
			"TrailingData":       {append(bytes.Clone(good), "{}"...), probe.ErrMalformed},
			"TrailingGarbage":    {append(bytes.Clone(good), 'x'), probe.ErrMalformed},
			"Oversize":           {append(bytes.Clone(good), bytes.Repeat([]byte(" "), probe.MaxMessage)...), probe.ErrMalformed},
			"NoVersion":          {change(`"version":1,`, ``), probe.ErrVersion},
			"LaterVersion":       {change(`"version":1,`, `"version":2,"news":{},`), probe.ErrVersion},
			"UnknownField":       {change(`"epoch"`, `"extra":1,"epoch"`), probe.ErrMalformed},
			"TrailingInPayload":  {enveloped(t, goodPayload+"{}"), probe.ErrMalformed},
			"OtherKind":          {change(`"kind":"record"`, `"kind":"witness"`), probe.ErrMalformed},
			"UnknownKind":        {change(`"kind":"record"`, `"kind":"fence"`), probe.ErrMalformed},
			"UnknownAnswer":      {change(`"running"`, `"perhaps"`), probe.ErrMalformed},
			"SuspectInARecord":   {change(`"epoch"`, `"suspect":"01000000-0000-0000-0000-000000000001","epoch"`), probe.ErrMalformed},
			"BadExecutor":        {change(`"01000000-`, `"0100000-`), probe.ErrMalformed},
			"BadRecord":          {change(`"record":"0`, `"record":"`), probe.ErrMalformed},
			"BadNonce":           {change(`"nonce":"0`, `"nonce":"X`), probe.ErrMalformed},
			"FractionalEpoch":    {change(`"epoch":5`, `"epoch":5.5`), probe.ErrMalformed},
			"AnotherSigner":      {change(`"01000000-`, `"02000000-`), probe.ErrUnknownSigner},
			"ShortSignature":     {[]byte(`{"payload":"` + payloadOf(t, good) + `","sig":"AAAA"}`), probe.ErrSignature},
			"NoSignature":        {[]byte(`{"payload":"` + payloadOf(t, good) + `"}`), probe.ErrSignature},
			"AWitnessAsARecord":  {signed(t, witnessStatement()), probe.ErrMalformed},
			"SomebodyElsesBytes": {swapped(t), probe.ErrSignature},
		} {
			got, err := probe.Open(row.message, probe.KindRecord, testKeyOf)
			if !errors.Is(err, row.want) || got != (probe.Statement{}) {
				t.Errorf("%s: %+v, %v, want %v", name, got, err, row.want)
			}
		}
	})

	t.Run("NamesWhoClaimsToHaveSigned", func(t *testing.T) {
		t.Parallel()
		s := statement(func(s *probe.Statement) { s.Executor = executorID(9) })
		_, err := probe.Open(signed(t, s), probe.KindRecord, testKeyOf)
		if u, ok := errors.AsType[*probe.UnknownSignerError](err); !ok || u.Claimed != executorID(9) {
			t.Errorf("got %v", err)
		}
	})
}

func signed(t testing.TB, s probe.Statement) []byte {
	t.Helper()
	b, err := probe.Sign(testKey, s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// payloadOf is the payload of a message, still in base64.
func payloadOf(t testing.TB, message []byte) string {
	t.Helper()
	var e struct{ Payload string }
	if err := json.Unmarshal(message, &e); err != nil {
		t.Fatal(err)
	}
	return e.Payload
}

// swapped carries the signature of another statement by the same executor.
func swapped(t testing.TB) []byte {
	t.Helper()
	var e struct{ Sig string }
	if err := json.Unmarshal(signed(t, statement(nil)), &e); err != nil {
		t.Fatal(err)
	}
	return []byte(`{"payload":"` + payloadOf(t, enveloped(t, goodPayload)) + `","sig":"` + e.Sig + `"}`)
}

// FuzzOpen: whatever the bytes, Open does not panic; what it accepts under a
// key is a statement that the key signs again to the same meaning; and
// without a signature nothing is accepted.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(goodPayload))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if got, err := probe.Open(payload, probe.KindRecord, testKeyOf); err == nil {
			t.Fatalf("accepted without a signature: %+v", got)
		}
		message, err := json.Marshal(map[string][]byte{"payload": payload, "sig": ed25519.Sign(testKey, payload)})
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []probe.Kind{probe.KindRecord, probe.KindWitness} {
			s, err := probe.Open(message, kind, testKeyOf)
			if err != nil {
				continue
			}
			if s.Kind != kind || s.Executor != executorID(1) {
				t.Fatalf("accepted %+v as %s", s, kind)
			}
			again, err := probe.Sign(testKey, s)
			if err != nil {
				if errors.Is(err, probe.ErrMalformed) && len(payload) > probe.MaxMessage/3 {
					continue // it grows when it is written with escapes
				}
				t.Fatal(err)
			}
			if got, err := probe.Open(again, kind, testKeyOf); err != nil || got != s {
				t.Fatalf("%+v came back as %+v, %v", s, got, err)
			}
		}
	})
}
