package api

import (
	"net/http"
	"testing"
)

func TestParsePrincipal(t *testing.T) {
	t.Parallel()
	t.Run("NamesWhomTheRouteNames", func(t *testing.T) {
		t.Parallel()
		r := &http.Request{Header: http.Header{"X-User": {"alice"}, "Authorization": {"Bearer a"}, "X-Two": {"1", "2"}}}
		for name, reader := range map[string]principalReader{
			"none":                                  (&API{}).newPrincipal(Principal{None: true}),
			"trusted_header:alice":                  trustedPrincipal("X-User"),
			"authorize:alice":                       (&API{}).newPrincipal(Principal{Authorize: true}),
			"func:al:ice":                           (&API{}).newPrincipal(Principal{Func: func(*http.Request) (string, error) { return "al:ice", nil }}),
			`headers:{"authorization": "Bearer a"}`: headersPrincipal([]string{"Authorization"}),
			`headers:{"Authorization": ["Bearer a"], "X-Two": ["1", "2"]}`:             headersPrincipal([]string{"Authorization", "X-Two"}),
			`headers:{"X-Two": ["1", "2"], "X-None": [], "Authorization": "Bearer a"}`: headersPrincipal([]string{"X-Two", "X-None", "Authorization"}),
		} {
			want, missing := reader(r, "alice")
			if got, err := ParsePrincipal(name); err != nil || missing != nil || got != want {
				t.Errorf("%s: %q, %v, want %q", name, got, err, want)
			}
		}
		if got, err := ParsePrincipal(`jwt:{"iss": "https://idp", "sub": "7", "n": 7, "a": ["x<"]}`); err != nil ||
			got != frame("jwt", "iss", `"https://idp"`, "sub", `"7"`, "n", "7", "a", `["x\u003c"]`) {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("RefusesWhatNamesNobody", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{
			"", "alice", "none:", "trusted_header", "trusted_header:", "jwt:", "jwt:{}", "jwt:[]", `jwt:{"a"`, `jwt:{"a":1}x`, `jwt:{"a":1,}`,
			"headers:{}", `headers:{"A": 1}`, `headers:{"A": []}`, "trusted:alice",
		} {
			if got, err := ParsePrincipal(name); err == nil {
				t.Errorf("%q names %q", name, got)
			}
		}
	})
}
