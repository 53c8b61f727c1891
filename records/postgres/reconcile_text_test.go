package postgres

import (
	"slices"
	"testing"
)

func TestNumbered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, want string
		names      []string
		errs       bool
	}{
		"EachParameterOnce":       {text: "a = :key AND b = :epoch AND c = :key", want: "a = ($1::text) AND b = ($2::bigint) AND c = ($1::text)", names: []string{"key", "epoch"}},
		"NotACast":                {text: "now()::text, :key::bytea", want: "now()::text, ($1::text)::bytea", names: []string{"key"}},
		"NotInQuotes":             {text: `':key' || 'it''s :key' || ":key" || E'\':key'`, want: `':key' || 'it''s :key' || ":key" || E'\':key'`},
		"NotInDollarQuotes":       {text: "$$:key$$ || $a$ $b$ :key $a$ || :key", want: "$$:key$$ || $a$ $b$ :key $a$ || ($1::text)", names: []string{"key"}},
		"NotInComments":           {text: "1 -- :key\n/* :key /* ' */ :key */ + :epoch", want: "1 -- :key\n/* :key /* ' */ :key */ + ($1::bigint)", names: []string{"epoch"}},
		"NotASlice":               {text: "a[1:2]", want: "a[1:2]"},
		"AWordThatEndsInE":        {text: `name'x' || :key`, want: `name'x' || ($1::text)`, names: []string{"key"}},
		"ADollarInAName":          {text: `a$b :key`, want: `a$b ($1::text)`, names: []string{"key"}},
		"ASemicolonAtTheEnd":      {text: "SELECT 1 ; \n", want: "SELECT 1"},
		"ASemicolonInQuotes":      {text: "SELECT ';'", want: "SELECT ';'"},
		"RefusesAnotherSemicolon": {text: "SELECT 1; SELECT 2", errs: true},
		"RefusesAnOpenComment":    {text: "/* /* */", errs: true},
		"RefusesAnOpenQuote":      {text: "'a''", errs: true},
		"RefusesAnOpenDollar":     {text: "$a$ b $a", errs: true},
		"RefusesAnotherName":      {text: ":keys", errs: true},
		"RefusesNothing":          {text: "\n", errs: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, names, err := numbered(c.text)
			if (err != nil) != c.errs || got != c.want || !slices.Equal(names, c.names) {
				t.Errorf("%q, %q, %v", got, names, err)
			}
		})
	}
}

// FuzzNumbered: no text makes it fail in another way than by an error, and one
// without parameters comes out as it went in.
func FuzzNumbered(f *testing.F) {
	for _, s := range []string{"a = :key::text", "'", "$a$:key$a$", "/*/**/", "E'\\", "--", "$", ":", "é:key"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, names, err := numbered(text)
		if err == nil && len(names) == 0 && len(got) > len(text) {
			t.Errorf("%q became %q", text, got)
		}
	})
}
