package sealed_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/probate-dev/probate/records/sealed"
)

// secret is a key in base64, another for another letter.
func secret(of string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(of, 16) + "0123456789abcdef"))
}

func parse(t testing.TB, text string) sealed.Keys {
	t.Helper()
	k, err := sealed.ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		ids  []string
	}{
		"ReadsOneALine":        {"new:" + secret("n") + "\nold:" + secret("o") + "\n", []string{"new", "old"}},
		"ReadsAListOnALine":    {"new:" + secret("n") + ", old:" + secret("o"), []string{"new", "old"}},
		"SkipsWhatSaysNothing": {"# keys\r\n\r\n  a-1.b_2:" + secret("n") + "  \r\n", []string{"a-1.b_2"}},
		"ReadsADashBeforeThem": {"-\na:" + secret("n"), []string{"a"}},
		"TakesNothingForNone":  {" \n# nothing\n", []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := parse(t, c.text).IDs(); !slices.Equal(got, c.ids) {
				t.Errorf("ids = %q, want %q", got, c.ids)
			}
		})
	}
	for name, c := range map[string]struct {
		text string
		want []string // of each fault, how it begins
	}{
		"RefusesALineWithoutId":        {secret("n"), []string{"line 1: want id:base64"}},
		"RefusesAnIdThatIsTheKey":      {secret("n") + ":" + secret("o"), []string{"line 1: want id:base64"}},
		"RefusesALongId":               {strings.Repeat("i", 33) + ":" + secret("n"), []string{"line 1: want id:base64"}},
		"RefusesAShortKey":             {"a:" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef")), []string{"line 1: want 32 bytes"}},
		"RefusesALongKey":              {"a:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("ab"), 17)), []string{"line 1: want 32 bytes"}},
		"RefusesWhatIsNotBase64":       {"a:" + strings.Repeat("!", 44), []string{"line 1: want 32 bytes"}},
		"RefusesAPlaceholder":          {"a:" + base64.StdEncoding.EncodeToString(make([]byte, 32)), []string{"line 1: all bytes"}},
		"RefusesADashBehindAKey":       {"a:" + secret("n") + "\n-", []string{"line 2: want id:base64"}},
		"RefusesTwoDashes":             {"-,-", []string{"line 1, entry 2: want id:base64"}},
		"RefusesAnIdTwice":             {"a:" + secret("n") + "\na:" + secret("o"), []string{"line 2: the id"}},
		"RefusesAKeyTwice":             {"a:" + secret("n") + "\nb:" + secret("n"), []string{"line 2: the key"}},
		"ReportsAllFaultsAndTheirLine": {"#\nx\n\na:" + secret("n") + ",b\nc:", []string{"line 2: ", "line 4, entry 2: ", "line 5: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, err := sealed.ParseKeys(c.text)
			if err == nil || len(k.IDs()) != 0 {
				t.Fatalf("keys %v, error %v", k.IDs(), err)
			}
			lines := strings.Split(err.Error(), "\n")
			if !slices.EqualFunc(lines, c.want, strings.HasPrefix) {
				t.Errorf("faults = %q, want %q", lines, c.want)
			}
			for part := range strings.FieldsFuncSeq(c.text, func(r rune) bool { return strings.ContainsRune(":,\n", r) }) {
				if len(part) > 8 && strings.Contains(err.Error(), part) {
					t.Errorf("the error quotes %q", part)
				}
			}
		})
	}
}

func TestNewKey(t *testing.T) {
	t.Parallel()
	one, err := sealed.NewKey("a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := sealed.NewKey("b")
	if err != nil {
		t.Fatal(err)
	}
	if got := parse(t, one+"\n"+other).IDs(); !slices.Equal(got, []string{"a", "b"}) { // the same key twice would be refused
		t.Errorf("ids = %q", got)
	}
	if _, err := sealed.NewKey("no id"); err == nil {
		t.Error("an id with a blank was accepted")
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	t.Run("AreNeverPrinted", func(t *testing.T) {
		t.Parallel()
		k := parse(t, "the-id:"+secret("n"))
		raw, _ := base64.StdEncoding.DecodeString(secret("n"))
		holder := struct{ Keys sealed.Keys }{k}
		var out strings.Builder
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", k, &k, holder)
		}
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).Info("keys", "keys", k, "holder", holder)
		}
		if err := json.NewEncoder(&out).Encode(holder); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "the-id") {
			t.Errorf("the id is missing:\n%s", out.String())
		}
		for _, form := range []string{string(raw), secret("n"), fmt.Sprintf("%d", raw)[1:20], fmt.Sprintf("%x", raw[:8]), fmt.Sprintf("%X", raw[:8])} {
			if strings.Contains(out.String(), form) {
				t.Errorf("%q was printed:\n%s", form, out.String())
			}
		}
	})
}
