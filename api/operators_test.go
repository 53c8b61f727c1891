package api_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/probate-dev/probate/api"
)

// lineFor is a line of a tokens file.
func lineFor(role, name, token string) string {
	return fmt.Sprintf("%s %s sha256:%x\n", role, name, sha256.Sum256([]byte(token)))
}

func TestOperators(t *testing.T) {
	t.Parallel()
	good := lineFor("read", "eve", "one")

	t.Run("AreReadFromLines", func(t *testing.T) {
		t.Parallel()
		text := "# who may come in\n\n" + good + "  " + lineFor("operate", "ada@example.org", "two")
		if _, err := api.ParseOperators([]byte(text)); err != nil {
			t.Error(err)
		}
		again := good + lineFor("read", "eve", "another of hers")
		if _, err := api.ParseOperators([]byte(again)); err != nil {
			t.Errorf("a second token of one name: %v", err)
		}
	})

	t.Run("AreRefusedWithEveryFaultAndItsLine", func(t *testing.T) {
		t.Parallel()
		const secret = "a-token-in-clear"
		for text, want := range map[string]string{
			"":                                     "names no operator",
			"# nobody\n":                           "names no operator",
			"read eve\n":                           "line 1: 2 words",
			"admin eve " + strings.Fields(good)[2]: "line 1: the role is neither",
			"read eve! sha256:00":                  "line 1: a name has",
			"read eve " + secret:                   "line 1: want sha256:",
			"read eve sha256:abcd":                 "line 1: want sha256:",
			"\n" + good + good:                     "line 3: the token of line 2 again",
			good + lineFor("operate", "eve", "2"):  "line 2: eve has role read in another line",
			lineFor("read", "eve", ""):             "line 1: the hash of an empty token",
			"read " + strings.Repeat("e", 65) + " sha256:00": "line 1: a name has",
			"read eve\nread ada\n":                           "line 2: 2 words",
			strings.Repeat("x", 70_000):                      "too long",
		} {
			_, err := api.ParseOperators([]byte(text))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%.60q: %v, want %q", text, err, want)
			} else if strings.Contains(err.Error(), secret) {
				t.Errorf("the error shows a token: %v", err)
			}
		}
	})

	t.Run("AreMadeSoThatTheirLineLetsThemIn", func(t *testing.T) {
		t.Parallel()
		first, line, err := api.NewOperator("ada", api.RoleOperate)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, first) || line+"\n" != lineFor("operate", "ada", first) {
			t.Errorf("token %q, line %q", first, line)
		}
		if second, _, _ := api.NewOperator("ada", api.RoleOperate); second == first || len(second) < 40 {
			t.Errorf("tokens %q and %q", first, second)
		}
		if _, _, err := api.NewOperator("no name", api.RoleRead); err == nil {
			t.Error("a name with a blank is taken")
		}
	})
}

// FuzzOperators: no text makes the parser panic, or let in who has no line.
func FuzzOperators(f *testing.F) {
	f.Add([]byte(lineFor("read", "eve", "one")))
	f.Add([]byte("operate ada sha256:\n#\n\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := api.ParseOperators(text)
		if err == nil && !strings.Contains(string(text), "sha256:") {
			t.Errorf("%q names somebody", text)
		}
	})
}
