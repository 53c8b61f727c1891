package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func fingerprintOf(t testing.TB, o FingerprintOptions, method, target, media, body string, headers ...string) [32]byte {
	t.Helper()
	f, err := newFingerprinter("op", o)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), method, target, http.NoBody)
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return f.of(r, []byte(body))
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	const media = "application/json"
	exact := FingerprintOptions{}
	canonical := FingerprintOptions{CanonicalJSON: true}
	for name, c := range map[string]struct {
		o           FingerprintOptions
		a, b        string
		mediaA      string
		mediaB      string
		same        bool
		pathA       string
		pathB       string
		headA, heaB []string
	}{
		"SeesTheBody":                   {o: exact, a: "1", b: "2"},
		"SeesTheOrderOfMembers":         {o: exact, a: `{"a":1,"b":2}`, b: `{"b":2,"a":1}`},
		"SeesThePath":                   {o: exact, pathA: "/a", pathB: "/b"},
		"SeesTheQuery":                  {o: exact, pathA: "/a?x=1", pathB: "/a?x=2"},
		"SeesTheOrderOfTheQuery":        {o: canonical, pathA: "/a?x=1&y=2", pathB: "/a?y=2&x=1"},
		"SeesEscapes":                   {o: exact, pathA: "/a%2Fb", pathB: "/a/b"},
		"SeesTheMediaType":              {o: exact, a: "{}", b: "{}", mediaA: media, mediaB: "text/json"},
		"SeesTheCharset":                {o: exact, a: "{}", b: "{}", mediaA: media, mediaB: "application/json; charset=latin1"},
		"OverlooksSpellingOfTheMedia":   {o: exact, a: "{}", b: "{}", mediaA: "text/plain; charset=utf-8", mediaB: "Text/Plain;Charset=utf-8", same: true},
		"OverlooksOtherHeaders":         {o: exact, headA: []string{"X-Trace", "1"}, heaB: []string{"X-Trace", "2"}, same: true},
		"SeesHeadersAskedFor":           {o: FingerprintOptions{Headers: []string{"x-version"}}, headA: []string{"X-Version", "1"}, heaB: []string{"X-Version", "2"}},
		"SeesEveryValueOfAHeader":       {o: FingerprintOptions{Headers: []string{"X-V"}}, headA: []string{"X-V", "1", "X-V", "2"}, heaB: []string{"X-V", "1"}},
		"CanonicalOverlooksOrder":       {o: canonical, a: `{"a":1,"b":[1,2]}`, b: ` { "b" : [ 1, 2 ], "a":1.0 }`, same: true},
		"CanonicalOverlooksEscapes":     {o: canonical, a: `"é/"`, b: `"\u00e9\/"`, same: true},
		"CanonicalSeesArrayOrder":       {o: canonical, a: "[1,2]", b: "[2,1]"},
		"CanonicalSeesLargeIntegers":    {o: canonical, a: "9007199254740993", b: "9007199254740992"},
		"CanonicalSeesLongDecimals":     {o: canonical, a: "0.1000000000000000055", b: "0.1"},
		"CanonicalSeesWhatOverflows":    {o: canonical, a: "1e400", b: "1e401"},
		"CanonicalSeesWhatUnderflows":   {o: canonical, a: "1e-400", b: "0"},
		"CanonicalOverlooksZeros":       {o: canonical, a: "10", b: "1.0e1", same: true},
		"CanonicalSeesRepeatedMembers":  {o: canonical, a: `{"a":1,"a":2}`, b: `{"a":2}`},
		"CanonicalSeesLoneSurrogates":   {o: canonical, a: `"\ud800"`, b: `"\ud801"`},
		"CanonicalSeesWhatIsNoJSON":     {o: canonical, a: "{", b: "{ "},
		"CanonicalSeesDeepNesting":      {o: canonical, a: strings.Repeat("[", 600) + strings.Repeat("]", 600), b: strings.Repeat("[", 600) + " " + strings.Repeat("]", 600)},
		"CanonicalIsOnlyForJSON":        {o: canonical, a: "[1]", b: "[ 1]", mediaA: "text/plain", mediaB: "text/plain"},
		"CanonicalIsForJSONsKin":        {o: canonical, a: "[1]", b: "[ 1]", mediaA: "application/vnd.x+json", mediaB: "application/vnd.x+json", same: true},
		"IgnoresAMember":                {o: FingerprintOptions{IgnoreJSON: []string{"/at"}}, a: `{"at":1,"x":2}`, b: `{"x":2,"at":3}`, same: true},
		"IgnoresItsAbsence":             {o: FingerprintOptions{IgnoreJSON: []string{"/at"}}, a: `{"at":1,"x":2}`, b: `{"x":2}`, same: true},
		"IgnoresInEveryElement":         {o: FingerprintOptions{IgnoreJSON: []string{"/i/*/id"}}, a: `{"i":[{"id":1},{"id":2}]}`, b: `{"i":[{"id":3},{}]}`, same: true},
		"IgnoresOnlyWhatIsNamed":        {o: FingerprintOptions{IgnoreJSON: []string{"/i/0/id"}}, a: `{"i":[{"id":1},{"id":2}]}`, b: `{"i":[{"id":1},{"id":3}]}`},
		"IgnoresEscapedNames":           {o: FingerprintOptions{IgnoreJSON: []string{"/a~1b/c~0d"}}, a: `{"a/b":{"c~d":1}}`, b: `{"a/b":{"c~d":2}}`, same: true},
		"IgnoringKeepsBytesApartOfText": {o: FingerprintOptions{IgnoreJSON: []string{"/x"}}, a: `{"x":1,"n":9007199254740993}`, b: `{"x":1,"n":9007199254740992}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, v := range []*string{&c.mediaA, &c.mediaB} {
				setDefault(v, media)
			}
			for _, v := range []*string{&c.pathA, &c.pathB} {
				setDefault(v, "/")
			}
			a := fingerprintOf(t, c.o, "POST", c.pathA, c.mediaA, c.a, c.headA...)
			b := fingerprintOf(t, c.o, "POST", c.pathB, c.mediaB, c.b, c.heaB...)
			if (a == b) != c.same {
				t.Errorf("same: %t, want %t", a == b, c.same)
			}
		})
	}
	t.Run("SeesTheMethod", func(t *testing.T) {
		t.Parallel()
		if fingerprintOf(t, exact, "POST", "/", media, "") == fingerprintOf(t, exact, "PUT", "/", media, "") {
			t.Error("POST and PUT look the same")
		}
	})
}

// FuzzFingerprint: bodies that are the same by their canonical form are the
// same again in that form, and white space never decides; different parts
// never run into each other.
func FuzzFingerprint(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5e3,"x\u0000"],"b":null}`, `{"a":1,"a":2}`, "9007199254740993", `"\ud800"`, "[[[", "-0", "1e999", ""} {
		f.Add(seed, "/a", "x=1")
	}
	f.Fuzz(func(t *testing.T, body, path, query string) {
		if c, ok := canonicalJSON([]byte(body), nil); ok {
			again, ok := canonicalJSON(c, nil)
			if !ok || string(again) != string(c) {
				t.Fatalf("%q is canonically %q, and that is %q, %t", body, c, again, ok)
			}
			spaced, ok := canonicalJSON([]byte("\n "+body+"\t"), nil)
			if !ok || string(spaced) != string(c) {
				t.Fatalf("with white space around, %q is %q, %t", body, spaced, ok)
			}
		}
		print := fingerprinter{operation: "op"}
		one := &http.Request{Method: "POST", URL: urlOf(path, query), Header: http.Header{}}
		two := &http.Request{Method: "POST", URL: urlOf(path+query, ""), Header: http.Header{}}
		if query != "" && one.URL.EscapedPath() != two.URL.EscapedPath() && print.of(one, []byte(body)) == print.of(two, []byte(body)) {
			t.Fatal("path and query run into each other")
		}
	})
}
