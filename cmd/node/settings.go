package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// settings reads a struct from a YAML file, then the environment, then flags,
// and reports every fault at once, each with its path and where it was written.
//
// A field's name is its yaml tag. A leaf takeover.lease_ttl of the struct is
// the key of that path in the file, PROBATE_TAKEOVER_LEASE_TTL in the
// environment and --takeover.lease-ttl as a flag. Lists of structs can be
// written in the file only.
type settings struct {
	file    string
	environ map[string]string
	flags   map[string]string // by path
	faults  []error
	where   map[string]string // of each path that was given: its line, variable or flag
	faulty  map[string]bool   // paths with a fault
}

// scalarSetter is a struct that can also be written as one word.
type scalarSetter interface{ setScalar(word string) error }

// read fills into, a pointer to a struct. file may be empty: no file.
func (s *settings) read(into any) error {
	s.where, s.faulty = map[string]string{}, map[string]bool{}
	root := reflect.ValueOf(into).Elem()
	if s.file != "" {
		s.readFile(root)
	}
	for _, l := range leaves(root, "") {
		name := environmentName(l.path)
		if word, ok := s.environ[name]; ok {
			s.setWord(l.value, l.path, word, name)
		}
		if word, ok := s.flags[l.path]; ok {
			s.setWord(l.value, l.path, word, "--"+flagName(l.path))
		}
	}
	return errors.Join(s.faults...)
}

func (s *settings) readFile(root reflect.Value) {
	text, err := os.ReadFile(s.file)
	if err != nil {
		s.faults = append(s.faults, fmt.Errorf("read configuration: %w", err))
		return
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		s.faults = append(s.faults, fmt.Errorf("%s: %w", s.file, err))
		return
	}
	if len(document.Content) == 0 {
		return
	}
	s.decode(document.Content[0], root, "")
}

// fault is one thing that is wrong: at which path of the configuration, and
// where that was written, if it was.
type fault struct{ where, path, reason string }

func (f *fault) Error() string {
	if f.where == "" {
		return f.path + ": " + f.reason
	}
	return f.where + ": " + f.path + ": " + f.reason
}

// fault notes what is wrong at a path.
func (s *settings) fault(path, format string, args ...any) {
	f := &fault{path: path, reason: fmt.Sprintf(format, args...)}
	s.faulty[path] = true
	s.faults = append(s.faults, f)
	for at := path; at != ""; at = parent(at) {
		if where, ok := s.where[at]; ok {
			f.where = where
			return
		}
	}
	for _, at := range slices.Sorted(maps.Keys(s.where)) {
		if strings.HasPrefix(at, path+".") { // of the first of those that were given
			f.where = s.where[at]
			return
		}
	}
}

// line is where it stands in the file; what stands elsewhere comes last.
func (f *fault) line() int {
	if n, err := strconv.Atoi(f.where[strings.LastIndex(f.where, ":")+1:]); err == nil {
		return n
	}
	return math.MaxInt
}

// inOrder sorts faults by where they were written.
func inOrder(faults []error) []error {
	slices.SortStableFunc(faults, func(a, b error) int {
		fa, okA := errors.AsType[*fault](a)
		fb, okB := errors.AsType[*fault](b)
		if !okA || !okB {
			return 0
		}
		return cmp.Compare(fa.line(), fb.line())
	})
	return faults
}

// doubt is fault for what was found out later: what follows from a fault that
// was reported is not reported again.
func (s *settings) doubt(path, format string, args ...any) {
	for at := path; at != ""; at = parent(at) {
		if s.faulty[at] {
			return
		}
	}
	s.fault(path, format, args...)
}

// parent is the path without its last step.
func parent(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

func (s *settings) decode(n *yaml.Node, v reflect.Value, path string) {
	s.where[path] = fmt.Sprintf("%s:%d", s.file, n.Line)
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		s.decode(n, v.Elem(), path)
	case n.Kind == yaml.ScalarNode:
		word, err := s.expand(n.Value)
		if err != nil {
			s.fault(path, "%v", err)
			return
		}
		s.setWord(v, path, word, s.where[path])
	case n.Kind == yaml.SequenceNode && v.Kind() == reflect.Slice:
		for i, item := range n.Content {
			element := reflect.New(v.Type().Elem()).Elem()
			s.decode(item, element, fmt.Sprintf("%s[%d]", path, i))
			v.Set(reflect.Append(v, element))
		}
	case n.Kind == yaml.MappingNode && v.Kind() == reflect.Struct:
		s.decodeStruct(n, v, path)
	case n.Kind == yaml.MappingNode:
		s.fault(path, "wants %s, not a mapping", kindOf(v))
	default:
		s.fault(path, "wants %s, not a list", kindOf(v))
	}
}

func (s *settings) decodeStruct(n *yaml.Node, v reflect.Value, path string) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, item := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		field, ok := fieldOf(v, key.Value)
		switch {
		case !ok:
			s.where[at] = fmt.Sprintf("%s:%d", s.file, key.Line)
			s.fault(at, "unknown key; known here: %s", strings.Join(namesOf(v), ", "))
		case seen[key.Value]:
			s.where[at] = fmt.Sprintf("%s:%d", s.file, key.Line)
			s.fault(at, "given twice")
		default:
			seen[key.Value] = true
			s.decode(item, field, at)
		}
	}
}

// setWord sets a value from one word, wherever that was written.
func (s *settings) setWord(v reflect.Value, path, word, where string) {
	s.where[path] = where
	if err := setWord(v, word); err != nil {
		s.fault(path, "%v", err)
	}
}

func setWord(v reflect.Value, word string) error {
	if setter, ok := reflect.TypeAssert[scalarSetter](v.Addr()); ok {
		return setter.setScalar(word)
	}
	switch v.Interface().(type) {
	case time.Duration:
		d, err := time.ParseDuration(word)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 1s, 500ms or 24h", word)
		}
		v.SetInt(int64(d))
		return nil
	case []string:
		words := strings.FieldsFunc(word, func(r rune) bool { return r == ',' || r == ' ' })
		v.Set(reflect.ValueOf(words))
		return nil
	}
	switch v.Kind() { //nolint:exhaustive // what a configuration has
	case reflect.String:
		v.SetString(word)
	case reflect.Bool:
		b, err := strconv.ParseBool(word)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", word)
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", word)
		}
		v.SetInt(i)
	default:
		return fmt.Errorf("wants %s, not one word", kindOf(v))
	}
	return nil
}

var reference = regexp.MustCompile(`\$\{([^}]*)\}`)

// expand replaces each ${X} by the environment's X; an unset one is an error.
func (s *settings) expand(text string) (string, error) {
	var missing []string
	expanded := reference.ReplaceAllStringFunc(text, func(ref string) string {
		name := ref[2 : len(ref)-1]
		value, ok := s.environ[name]
		if !ok {
			missing = append(missing, name)
		}
		return value
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("${%s} is not set in the environment", strings.Join(missing, "}, ${"))
	}
	return expanded, nil
}

// leaf is a value that one word can set.
type leaf struct {
	path  string
	help  string
	value reflect.Value
}

// leaves lists, in order, what the environment and flags can set: everything
// but lists of structs.
func leaves(v reflect.Value, path string) []leaf {
	var list []leaf
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, field := f.Tag.Get("yaml"), v.Field(i)
		if name == "" || name == "-" {
			continue
		}
		switch {
		case field.Kind() == reflect.Struct:
			list = append(list, leaves(field, join(path, name))...)
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
		default:
			list = append(list, leaf{path: join(path, name), help: f.Tag.Get("help"), value: field})
		}
	}
	return list
}

func fieldOf(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if tag := v.Type().Field(i).Tag.Get("yaml"); tag == name && tag != "" && tag != "-" {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func namesOf(v reflect.Value) []string {
	var names []string
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("yaml"); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func environmentName(path string) string {
	return "PROBATE_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

func flagName(path string) string { return strings.ReplaceAll(path, "_", "-") }

func kindOf(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Struct:
		return "a mapping of " + strings.Join(namesOf(v), ", ")
	case v.Kind() == reflect.Slice:
		return "a list"
	case v.Type() == reflect.TypeFor[time.Duration]():
		return "a duration such as 1s"
	}
	return "a " + v.Kind().String()
}
