package api

import (
	"net/http"
	"strings"
	"testing"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line string
		key  string // "": refused
		code code
	}{
		"AcceptsAWord":                  {"8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324", ""},
		"AcceptsAString":                {`"k"`, "k", ""},
		"AcceptsBase64":                 {"a/b+c==", "a/b+c==", ""},
		"AcceptsBlanksAroundIt":         {"  \"k\"\t", "k", ""},
		"AcceptsSeparatorsInAString":    {`"a,b;c"`, "a,b;c", ""},
		"UnescapesAString":              {`"a\"b\\c"`, `a"b\c`, ""},
		"AcceptsABackslashInAWord":      {`a\b`, `a\b`, ""},
		"AcceptsTheLongest":             {strings.Repeat("k", 255), strings.Repeat("k", 255), ""},
		"CountsAfterUnquoting":          {`"` + strings.Repeat(`\"`, 255) + `"`, strings.Repeat(`"`, 255), ""},
		"RefusesLonger":                 {strings.Repeat("k", 256), "", codeKeyTooLong},
		"RefusesEmpty":                  {"", "", codeKeyInvalid},
		"RefusesAnEmptyString":          {`""`, "", codeKeyInvalid},
		"RefusesASpace":                 {"a b", "", codeKeyInvalid},
		"RefusesASpaceInAString":        {`"a b"`, "", codeKeyInvalid},
		"RefusesAControlCharacter":      {"a\x7f", "", codeKeyInvalid},
		"RefusesNonASCII":               {"ä", "", codeKeyInvalid},
		"RefusesAComma":                 {"a,b", "", codeKeyInvalid},
		"RefusesAListOfStrings":         {`"a","b"`, "", codeKeyInvalid},
		"RefusesParametersOfAString":    {`"a";q=1`, "", codeKeyInvalid},
		"RefusesParametersOfAWord":      {`a;q=1`, "", codeKeyInvalid},
		"RefusesAnOpenString":           {`"a`, "", codeKeyInvalid},
		"RefusesAnOpenStringWithEscape": {`"a\"`, "", codeKeyInvalid},
		"RefusesAnOpenEscape":           {`"a\`, "", codeKeyInvalid},
		"RefusesAnUnknownEscape":        {`"\n"`, "", codeKeyInvalid},
		"RefusesAQuoteInAWord":          {`a"b`, "", codeKeyInvalid},
		"RefusesBytes":                  {":aGk=:;", "", codeKeyInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, p := parseKey([]string{c.line})
			if key != c.key || (p == nil) != (c.code == "") || p != nil && p.code != c.code {
				t.Errorf("parseKey(%q) = %q, %+v; want %q, %q", c.line, key, p, c.key, c.code)
			}
		})
	}
	t.Run("RefusesTwoLines", func(t *testing.T) {
		t.Parallel()
		if key, p := parseKey([]string{"a", "a"}); p == nil {
			t.Errorf("parseKey accepts %q", key)
		}
	})
}

// FuzzParseKey: what is accepted is visible ASCII of allowed length, and
// quoting it gives the same key.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{"k", `"k"`, `"a\"b"`, "a,b", `"`, `"\`, "", " ", "ä", strings.Repeat("k", 256)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key, p := parseKey([]string{line})
		if p != nil {
			if key != "" || p.code != codeKeyInvalid && p.code != codeKeyTooLong {
				t.Fatalf("refused with %q and %+v", key, p)
			}
			return
		}
		if key == "" || len(key) > maxKeyBytes || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("accepted %q", key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, p := parseKey([]string{quoted}); p != nil || again != key {
			t.Fatalf("quoted, %q is %q, %+v", key, again, p)
		}
	})
}

func TestIcebergKey(t *testing.T) {
	t.Parallel()
	const lower = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
	for _, key := range []string{lower, strings.ToUpper(lower), "017F22e2-79b0-7CC3-b8c4-dc0c0c07398f"} {
		if got, p := icebergKey(key); p != nil || got != strings.ToLower(key) {
			t.Errorf("icebergKey(%q) = %q, %+v", key, got, p)
		}
	}
	for _, key := range []string{
		"", "1-1-1-1-1", "919108f7-52d1-4320-9bac-f847db4148a8", "{" + lower + "}", strings.ReplaceAll(lower, "-", ""), lower[:35] + "g",
		"017f22e2-79b0-7cc3-c8c4-dc0c0c07398f", "017f22e2-79b0-7cc3-98c4\rdc0c0c07398f", "017f22e2\r79b0-7cc3-98c4-dc0c0c07398f",
	} {
		if got, p := icebergKey(key); p == nil {
			t.Errorf("icebergKey(%q) = %q", key, got)
		}
	}
}

func TestPreferredWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines   []string
		seconds int
		ok      bool
	}{
		"ReadsSeconds":           {[]string{"wait=10"}, 10, true},
		"ReadsZero":              {[]string{"wait=0"}, 0, true},
		"ReadsAmongOthers":       {[]string{"respond-async, Wait=5; x=y"}, 5, true},
		"ReadsAnyLine":           {[]string{"return=minimal", "wait=7"}, 7, true},
		"ReadsAQuotedWord":       {[]string{`wait="3"`}, 3, true},
		"TakesTheFirst":          {[]string{"wait=1, wait=2"}, 1, true},
		"BoundsTheLargest":       {[]string{"wait=99999999999999999999999"}, 1 << 31, true},
		"IgnoresNegative":        {[]string{"wait=-1"}, 0, false},
		"IgnoresFractions":       {[]string{"wait=1.5"}, 0, false},
		"IgnoresNothing":         {[]string{"wait"}, 0, false},
		"IgnoresOtherPreference": {[]string{"awaits=3"}, 0, false},
		"IgnoresAbsence":         {nil, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seconds, ok := preferredWait(http.Header{headerPrefer: c.lines})
			if seconds != c.seconds || ok != c.ok {
				t.Errorf("preferredWait(%q) = %d, %t; want %d, %t", c.lines, seconds, ok, c.seconds, c.ok)
			}
		})
	}
}
