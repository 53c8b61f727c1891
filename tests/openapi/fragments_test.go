// Package openapi_test holds the OpenAPI documents against what a running node
// answers, and against the code that answers.
package openapi_test

import (
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var documents = []string{"internal.yaml", "idempotency.yaml", "dataflows.yaml"}

// TestDocument shows that the documents are what they say they are.
func TestDocument(t *testing.T) {
	t.Parallel()
	for _, name := range documents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := load(t, name)
			t.Run("HasTheShapeOfOpenAPI31", func(t *testing.T) { checkShape(t, d) })
			t.Run("RefersToWhatIsThere", func(t *testing.T) { checkReferences(t, d) })
			t.Run("HasSchemasThatCompile", func(t *testing.T) { checkSchemas(t, d) })
			t.Run("NamesEachOperationOnce", func(t *testing.T) { checkOperations(t, d) })
		})
	}
}

// checkShape knows the part of OpenAPI 3.1 that the documents use, and refuses
// every other key.
func checkShape(t *testing.T, d *document) {
	c := jsonschema.NewCompiler()
	if err := c.AddResource("https://probate.invalid/shape", readYAML(t, "testdata/openapi31.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := c.MustCompile("https://probate.invalid/shape").Validate(d.root); err != nil {
		t.Error(err)
	}
}

func checkReferences(t *testing.T, d *document) {
	seen := 0
	d.walk(func(pointer string, m map[string]any) {
		ref, is := m["$ref"].(string)
		if !is {
			return
		}
		seen++
		target, local := strings.CutPrefix(ref, "#")
		if _, _, ok := d.at(target); !local || !ok {
			t.Errorf("%s: %q leads nowhere", pointer, ref)
		}
	})
	if seen == 0 {
		t.Error("there are no references")
	}
}

func checkSchemas(t *testing.T, d *document) {
	seen := 0
	d.walk(func(pointer string, m map[string]any) {
		if strings.HasPrefix(pointer, "/components/schemas/") && strings.Count(pointer, "/") == 3 {
			d.schema(t, pointer)
			seen++
		}
		if _, has := m["schema"]; has {
			d.schema(t, pointer+"/schema")
			seen++
		}
	})
	if seen < 20 {
		t.Errorf("only %d schemas", seen)
	}
}

func checkOperations(t *testing.T, d *document) {
	ids := map[string]string{}
	d.walk(func(pointer string, m map[string]any) {
		id, is := m["operationId"].(string)
		if !is {
			return
		}
		if other, twice := ids[id]; twice {
			t.Errorf("%s and %s are both %q", other, pointer, id)
		}
		ids[id] = pointer
	})
}
