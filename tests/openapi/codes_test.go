package openapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCodes holds the codes that the documents list against those that the
// code can answer with, each under its status.
func TestCodes(t *testing.T) {
	t.Parallel()
	t.Run("OfProblemsAreThoseOfTheGateway", func(t *testing.T) {
		t.Parallel()
		d, said := load(t, "idempotency.yaml"), tableOf(t, "problem.go", "code")
		if diff := cmp.Diff(said, d.statuses(t)); diff != "" {
			t.Errorf("codes by status (-code +document):\n%s", diff)
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(said)), d.enum(t, "/components/schemas/Problem/properties/code")); diff != "" {
			t.Errorf("all codes (-code +document):\n%s", diff)
		}
	})
	t.Run("OfRefusalsAreThoseOfTheInternalListener", func(t *testing.T) {
		t.Parallel()
		d, said := load(t, "internal.yaml"), refusalCodes(t)
		for _, routers := range []string{"not_found", "method_not_allowed"} {
			delete(said, routers) // of a handler that serves nothing else
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(said)), d.enum(t, "/components/schemas/Refusal/properties/code")); diff != "" {
			t.Errorf("all codes (-code +document):\n%s", diff)
		}
		toOperators := tableOf(t, "admin_problem.go", "adminCode")
		if diff := cmp.Diff(slices.Sorted(maps.Keys(toOperators)), d.enum(t, "/components/schemas/OperatorRefusal/properties/code")); diff != "" {
			t.Errorf("all codes to operators (-code +document):\n%s", diff)
		}
		maps.Copy(said, toOperators)
		if diff := cmp.Diff(said, d.statuses(t)); diff != "" {
			t.Errorf("codes by status (-code +document):\n%s", diff)
		}
	})
}

// statuses are the codes of all shared problem responses, with their statuses.
func (d *document) statuses(t *testing.T) map[string]int {
	t.Helper()
	all, _, _ := d.at("/components/responses")
	found := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(all.(map[string]any))) {
		schema, _, ok := d.at("/components/responses/" + name + "/content/application~1problem+json/schema")
		if !ok {
			continue
		}
		narrowed := schema.(map[string]any)["allOf"].([]any)[1].(map[string]any)["properties"].(map[string]any)
		status, err := strconv.Atoi(toString(narrowed["status"].(map[string]any)["const"]))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		code := narrowed["code"].(map[string]any)
		codes, _ := code["enum"].([]any)
		if one, is := code["const"]; is {
			codes = append(codes, one)
		}
		for _, c := range codes {
			found[toString(c)] = status
		}
	}
	return found
}

func (d *document) enum(t *testing.T, pointer string) []string {
	t.Helper()
	v, _, ok := d.at(pointer + "/enum")
	if !ok {
		t.Fatalf("%s: nothing at %s", d.name, pointer)
	}
	var words []string
	for _, w := range v.([]any) {
		words = append(words, toString(w))
	}
	slices.Sort(words)
	return words
}

// tableOf reads a table of package api: from each code, whose type is named, to
// its status.
func tableOf(t *testing.T, name, codeType string) map[string]int {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../api/"+name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names, statuses := map[string]string{}, map[string]int{} // by constant
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if id, ok := n.Type.(*ast.Ident); ok && id.Name == codeType {
				names[n.Names[0].Name] = literal(n.Values[0])
			}
		case *ast.KeyValueExpr:
			of, isCode := n.Key.(*ast.Ident)
			if kind, ok := n.Value.(*ast.CompositeLit); ok && isCode {
				for _, field := range kind.Elts {
					if kv, ok := field.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == "status" {
						statuses[of.Name], _ = strconv.Atoi(literal(kv.Value))
					}
				}
			}
		}
		return true
	})
	found := map[string]int{}
	for constant, name := range names {
		found[name] = statuses[constant]
	}
	if len(found) < 10 {
		t.Fatalf("read only %v", found)
	}
	return found
}

func literal(e ast.Expr) string {
	l, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	if s, err := strconv.Unquote(l.Value); err == nil {
		return s
	}
	return l.Value
}

var refusal = regexp.MustCompile(`refuse\(w, http\.Status(\w+), "(\w+)"`)

// refusalCodes reads where package probe refuses a question.
func refusalCodes(t *testing.T) map[string]int {
	t.Helper()
	status := map[string]int{
		"BadRequest": 400, "Unauthorized": 401, "NotFound": 404, "MethodNotAllowed": 405, "RequestEntityTooLarge": 413,
		"TooManyRequests": 429, "InternalServerError": 500, "ServiceUnavailable": 503,
	}
	found := map[string]int{}
	for _, name := range []string{"handler.go", "answer.go"} {
		text, err := os.ReadFile(filepath.Join("../../probe", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range refusal.FindAllSubmatch(text, -1) {
			found[string(m[2])] = status[string(m[1])]
		}
	}
	if len(found) < 8 {
		t.Fatalf("read only %v", found)
	}
	return found
}
