package openapi_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// document is an OpenAPI document.
type document struct {
	name     string
	root     any // as JSON has it
	compiler *jsonschema.Compiler
}

// folder holds the documents.
const folder = "../../docs/openapi"

func load(t *testing.T, name string) *document {
	t.Helper()
	d := &document{name: name, root: readYAML(t, filepath.Join(folder, name)), compiler: jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	d.compiler.AssertContent()
	if err := d.compiler.AddResource(d.url(""), d.root); err != nil {
		t.Fatal(err)
	}
	return d
}

// readYAML reads a file as the JSON that it stands for.
func readYAML(t *testing.T, name string) any {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	as, err := json.Marshal(tree)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return decode(t, as)
}

func decode(t *testing.T, text []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return v
}

func (d *document) url(pointer string) string {
	return "https://probate.invalid/" + d.name + "#" + pointer
}

// at follows a pointer and, where it leads to a reference, that one too. It
// returns where it ended.
func (d *document) at(pointer string) (v any, end string, ok bool) {
	v, end = d.root, ""
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		m, isMap := v.(map[string]any)
		if v, ok = m[unescape(step)]; !isMap || !ok {
			return nil, pointer, false
		}
		end += "/" + step
		if ref, is := reference(v); is {
			if v, end, ok = d.at(ref); !ok {
				return nil, end, false
			}
		}
	}
	return v, end, true
}

// reference is where a value points to within its document.
func reference(v any) (pointer string, is bool) {
	m, _ := v.(map[string]any)
	ref, _ := m["$ref"].(string)
	return strings.CutPrefix(ref, "#")
}

func escape(step string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(step) }

func unescape(step string) string { return strings.NewReplacer("~1", "/", "~0", "~").Replace(step) }

// walk visits every map of the document, in order, with its pointer.
func (d *document) walk(visit func(pointer string, m map[string]any)) {
	var into func(pointer string, v any)
	into = func(pointer string, v any) {
		switch v := v.(type) {
		case map[string]any:
			visit(pointer, v)
			for _, name := range slices.Sorted(maps.Keys(v)) {
				into(pointer+"/"+escape(name), v[name])
			}
		case []any:
			for i, item := range v {
				into(fmt.Sprintf("%s/%d", pointer, i), item)
			}
		}
	}
	into("", d.root)
}

// schema compiles what a pointer leads to.
func (d *document) schema(t *testing.T, pointer string) *jsonschema.Schema {
	t.Helper()
	s, err := d.compiler.Compile(d.url(pointer))
	if err != nil {
		t.Fatalf("%s: %s: %v", d.name, pointer, err)
	}
	return s
}

// answer is an answer that was read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func read(t *testing.T, resp *http.Response) answer {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, body}
}

// checkResponse holds an answer against the response object at a pointer: its
// headers, its media type and its body.
func (d *document) checkResponse(t *testing.T, pointer string, a answer) {
	t.Helper()
	v, end, ok := d.at(pointer)
	if !ok {
		t.Errorf("%s describes no response %s", d.name, pointer)
		return
	}
	d.checkHeaders(t, end, a.header)
	content, _ := v.(map[string]any)["content"].(map[string]any)
	if content == nil {
		if len(a.body) > 0 {
			t.Errorf("%s: %s has a body: %s", d.name, pointer, a.body)
		}
		return
	}
	media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	if content[media] == nil {
		t.Errorf("%s: %s: media type %q is not described", d.name, pointer, media)
		return
	}
	var body any = string(a.body)
	if strings.HasSuffix(media, "json") {
		body = decode(t, a.body)
	}
	if err := d.schema(t, end+"/content/"+escape(media)+"/schema").Validate(body); err != nil {
		t.Errorf("%s: %s: %v\n%s", d.name, pointer, err, a.body)
	}
}

// ours are the headers that an answer has only if they are described.
func ours(name string) bool {
	return strings.HasPrefix(name, "Idempot") || name == "Retry-After" || name == "Preference-Applied" || name == "Www-Authenticate"
}

// checkHeaders holds headers against the map of them at a response object.
func (d *document) checkHeaders(t *testing.T, pointer string, h http.Header) {
	t.Helper()
	described := map[string]bool{}
	all, _, _ := d.at(pointer + "/headers")
	headers, _ := all.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		canonical := http.CanonicalHeaderKey(name)
		described[canonical] = true
		object, end, ok := d.at(pointer + "/headers/" + escape(name))
		if !ok {
			t.Errorf("%s: %s: header %s leads nowhere", d.name, pointer, name)
			continue
		}
		values := h[canonical]
		if required, _ := object.(map[string]any)["required"].(bool); required && len(values) == 0 {
			t.Errorf("%s: %s: header %s is missing", d.name, pointer, name)
		}
		for _, value := range values {
			if err := d.schema(t, end+"/schema").Validate(value); err != nil {
				t.Errorf("%s: %s: header %s: %v", d.name, pointer, name, err)
			}
		}
	}
	for name := range h {
		if ours(name) && !described[name] {
			t.Errorf("%s: %s: header %s is not described", d.name, pointer, name)
		}
	}
}

func toString(v any) string { return fmt.Sprint(v) }

// readRaw reads an answer off a connection.
func readRaw(t *testing.T, from io.Reader) answer {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(from), nil)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, resp)
}
