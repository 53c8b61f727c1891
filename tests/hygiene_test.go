package tests_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	root = ".."

	// A file holds one idea, and an idea fits into this many lines.
	maxLines     = 450
	maxTestLines = 600
)

// vagueNames would let anything in.
var vagueNames = []string{"common", "util", "types", "models", "service", "manager", "helper"}

// goPackage is what `go list` says about a package.
type goPackage struct {
	ImportPath, Name, Doc              string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
}

func (p goPackage) folder() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// packages asks the go command for every package of the module, also for one
// that does not compile: its imports are judged all the same.
func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Name,Doc,GoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, complaints.String())
	}
	var all []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		t.Fatal("go list found no package")
	}
	return all
}

func TestPackages(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, fault := range packageFaults(p) {
			t.Errorf("%s %s", p.folder(), fault)
		}
	}
}

func packageFaults(p goPackage) []string {
	var faults []string
	name := strings.TrimSuffix(p.Name, "_test")
	for _, vague := range vagueNames {
		if name == vague || path.Base(p.ImportPath) == vague {
			faults = append(faults, fmt.Sprintf("is called %q, which says nothing", vague))
		}
	}
	if len(p.GoFiles) > 0 && p.Doc == "" {
		faults = append(faults, "has no package comment")
	}
	return faults
}

func TestFiles(t *testing.T) {
	t.Parallel()
	seen := 0
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || name == "bin" || name == "dist"):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		src, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		seen++
		faults, err := fileFaults(name, src)
		for _, fault := range faults {
			t.Errorf("%s%s", name, fault)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Fatal("no Go file found")
	}
}

// fileFaults lists where a file is too long, skips a test, or sleeps.
func fileFaults(name string, src []byte) ([]string, error) {
	var faults []string
	limit := maxLines
	if strings.HasSuffix(name, "_test.go") {
		limit = maxTestLines
	}
	if lines := bytes.Count(src, []byte("\n")); lines > limit {
		faults = append(faults, fmt.Sprintf(": %d lines, over %d: split it by idea", lines, limit))
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	at := func(n ast.Node) int { return files.Position(n.Pos()).Line }
	tests, clock := importedAs(file, "testing"), importedAs(file, "time")
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		on, _ := selector.X.(*ast.Ident)
		switch selector.Sel.Name {
		case "Sleep":
			if on != nil && clock != "" && on.Name == clock {
				faults = append(faults, fmt.Sprintf(":%d: sleeps; wait for a condition with a deadline", at(n)))
			}
		case "Skip", "Skipf", "SkipNow":
			if tests != "" {
				faults = append(faults, fmt.Sprintf(":%d: skips a test", at(n)))
			}
		}
		return true
	})
	return faults, nil
}

// importedAs is the name under which a file knows a package of the standard
// library; empty if it does not.
func importedAs(file *ast.File, importPath string) string {
	for _, spec := range file.Imports {
		if spec.Path.Value != `"`+importPath+`"` {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

// TestHygiene shows the rules about packages and files to find what they are
// for.
func TestHygiene(t *testing.T) {
	t.Parallel()
	source := func(head string, lines int) []byte {
		return append([]byte(head), bytes.Repeat([]byte("\n"), lines-strings.Count(head, "\n"))...)
	}
	for _, c := range []struct {
		name, file string
		src        []byte
		want       []string
	}{
		{"AllowsAFileOfTheLimit", "a.go", source("package a\n", maxLines), nil},
		{"RefusesALongerFile", "a.go", source("package a\n", maxLines+1), []string{": 451 lines, over 450: split it by idea"}},
		{"AllowsATestFileOfItsLimit", "a_test.go", source("package a\n", maxTestLines), nil},
		{"RefusesALongerTestFile", "a_test.go", source("package a\n", maxTestLines+1), []string{": 601 lines, over 600: split it by idea"}},
		{
			"RefusesASleep", "a.go", []byte("package a\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"),
			[]string{":3: sleeps; wait for a condition with a deadline"},
		},
		{
			"RefusesASleepUnderAnotherName", "a.go", []byte("package a\nimport clock \"time\"\nvar f = clock.Sleep\n"),
			[]string{":3: sleeps; wait for a condition with a deadline"},
		},
		{"AllowsSleepingBeauty", "a.go", []byte("package a\nfunc f() { princess.Sleep(100) }\n"), nil},
		{
			"RefusesEverySkip", "a_test.go",
			[]byte("package a\nimport \"testing\"\nfunc TestA(t *testing.T) {\n\tt.Skip()\n\tt.Skipf(\"\")\n\tt.SkipNow()\n}\n"),
			[]string{":4: skips a test", ":5: skips a test", ":6: skips a test"},
		},
		{"AllowsADecoderToSkip", "a.go", []byte("package a\nfunc f() { decoder.Skip() }\n"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := fileFaults(c.file, c.src)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("faults = %q, %v, want %q", got, err, c.want)
			}
		})
	}

	for _, c := range []struct {
		name string
		p    goPackage
		want []string
	}{
		{"AllowsAPackageThatSaysWhatItIs", goPackage{ImportPath: module + "/probe", Name: "probe", Doc: "Package probe asks.", GoFiles: []string{"a.go"}}, nil},
		{"RefusesAPackageWithoutAComment", goPackage{ImportPath: module + "/probe", Name: "probe", GoFiles: []string{"a.go"}}, []string{"has no package comment"}},
		{"AllowsTestsWithoutAComment", goPackage{ImportPath: module + "/laws", Name: "laws_test"}, nil},
		{"RefusesAVagueName", goPackage{ImportPath: module + "/api/util", Name: "strs"}, []string{`is called "util", which says nothing`}},
		{"RefusesAVagueNameInTheClause", goPackage{ImportPath: module + "/x", Name: "helper"}, []string{`is called "helper", which says nothing`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := packageFaults(c.p); !slices.Equal(got, c.want) {
				t.Errorf("faults = %q, want %q", got, c.want)
			}
		})
	}
}
