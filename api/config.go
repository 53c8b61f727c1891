package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"time"

	"github.com/probate-dev/probate/takeover"
)

// Coordinator answers keyed requests; [takeover.Node] is one.
type Coordinator interface {
	Do(ctx context.Context, req takeover.Request, work takeover.Work) (takeover.Answer, error)
}

// Events is told how requests were answered, for metrics. Calls are made on
// the path of the answer and must not block.
type Events interface {
	// Answered: a keyed request of the route (its operation) was answered
	// after so long. The outcome is the value of Idempotency-Status, the code
	// of the problem, or one of "refused" (by the authorizing service),
	// "client_gone" and "aborted" (the connection was cut): a small set.
	Answered(route, outcome string, took time.Duration)
}

// NoEvents ignores everything.
type NoEvents struct{}

// Answered does nothing.
func (NoEvents) Answered(string, string, time.Duration) {}

// Config is what an API answers, and with what. A zero value means the
// default where one is given.
type Config struct {
	Coordinator Coordinator // no default
	Routes      []Route     // for [API.ServeHTTP]; each needs an upstream

	// PassThrough is the upstream of requests that no route's path matches:
	// scheme, host and perhaps a path. Empty: they are answered 404.
	PassThrough string

	// Wait is how long duplicates wait, for routes that do not say. Defaults
	// 10s and 60s.
	Wait Wait

	// Redact names response headers that are never stored, on any route.
	Redact []string

	// ProblemTypes comes before the code in a problem's type. Default
	// "urn:probate:problem:".
	ProblemTypes string

	Logger *slog.Logger // default: discards
	Events Events       // default: ignores
}

// Wait bounds how long a duplicate waits for the answer of the request that is
// being executed.
type Wait struct {
	Default time.Duration // where the client does not say
	Max     time.Duration // what a client may ask for with Prefer: wait=N
}

// Defaults of a configuration.
const (
	DefaultWait         = 10 * time.Second
	DefaultMaxWait      = 60 * time.Second
	DefaultProblemTypes = "urn:probate:problem:"
)

// WithDefaults fills every zero field that has a default, also the routes'.
func (c Config) WithDefaults() Config {
	c.Wait = c.Wait.or(Wait{Default: DefaultWait, Max: DefaultMaxWait})
	setDefault(&c.ProblemTypes, DefaultProblemTypes)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Events == nil {
		c.Events = NoEvents{}
	}
	routes := make([]Route, len(c.Routes))
	for i, r := range c.Routes {
		routes[i] = r.withDefaults(c)
	}
	c.Routes = routes
	return c
}

func (w Wait) or(other Wait) Wait {
	if w.Max == 0 {
		w.Max = max(other.Max, w.Default)
	}
	if w.Default == 0 {
		w.Default = min(other.Default, w.Max)
	}
	return w
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// FieldError is one fault of a configuration. Path names the field the way a
// file would, such as routes[2].principal.
type FieldError struct{ Path, Reason string }

func (e *FieldError) Error() string { return e.Path + ": " + e.Reason }

// Validate joins every fault, each a [FieldError], of the configuration with
// its defaults. It does not ask for a coordinator, so that a file can be
// checked without one.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var f faults
	c.Wait.validate(f.at("wait"))
	validateRedact(f.at("redact"), c.Redact)
	if c.PassThrough != "" {
		validateUpstream(f.at("pass_through"), c.PassThrough)
	}
	seen, recorded := map[string]int{}, map[string]int{}
	for i, r := range c.Routes {
		at := f.at(fmt.Sprintf("routes[%d]", i))
		r.validate(at)
		if len(r.Methods) == 0 {
			at.at("match.methods").add("missing: name the methods that are recorded, such as POST")
		}
		if r.Path == "" {
			at.at("match.path").add("missing: a pattern such as /orders/{id}/payments")
		}
		if r.Upstream == "" {
			at.at("upstream").add("missing: where requests are sent")
		}
		if first, twice := seen[r.Operation]; twice && r.Operation != "" {
			at.at("operation").add("%q is also the operation of routes[%d]; a record finds its route by this name", r.Operation, first)
		} else {
			seen[r.Operation] = i
		}
		for _, m := range r.Methods {
			place := m + " " + parameter.ReplaceAllString(r.Path, "{}")
			if first, twice := recorded[place]; twice && r.Path != "" {
				at.at("match").add("%s %s is also recorded by routes[%d]", m, r.Path, first)
			} else {
				recorded[place] = i
			}
		}
	}
	return f.join()
}

// parameter is one of a path, whatever its name: the router does not tell such
// paths apart.
var parameter = regexp.MustCompile(`\{[^{}:]*\}`)

// Warnings says what is allowed and dear: one line for every route on which a
// lost reply makes a key unusable for long.
func (c Config) Warnings() []string {
	var lines []string
	for _, r := range c.WithDefaults().Routes {
		if w := r.warning(); w != "" {
			lines = append(lines, w)
		}
	}
	return lines
}

func (w Wait) validate(at fieldFaults) {
	if w.Default < 0 || w.Max < 0 {
		at.add("negative")
	}
	if w.Default > w.Max {
		at.add("default %s is more than max %s", w.Default, w.Max)
	}
}

// validateUpstream accepts what requests can be sent to.
func validateUpstream(at fieldFaults, raw string) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		at.add("not a URL: %v", err)
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		at.add("%q: want http:// or https:// and a host", raw)
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		at.add("want no more than scheme, host and path")
	}
}

// faults collects what is wrong, so that all of it is reported at once.
type faults struct{ all []error }

// fieldFaults collects what is wrong below one path.
type fieldFaults struct {
	f    *faults
	path string
}

func (f *faults) at(path string) fieldFaults { return fieldFaults{f, path} }
func (f *faults) join() error                { return errors.Join(f.all...) }

func (a fieldFaults) at(path string) fieldFaults {
	if a.path == "" {
		return fieldFaults{a.f, path}
	}
	return fieldFaults{a.f, a.path + "." + path}
}

func (a fieldFaults) add(format string, args ...any) {
	a.f.all = append(a.f.all, &FieldError{Path: a.path, Reason: fmt.Sprintf(format, args...)})
}
