package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kong"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

type benchCmd struct {
	URL         string        `help:"Keyed operation of a running node, to be sent POST requests. Default: an embedded node." placeholder:"URL"`
	Internal    string        `help:"Internal listener of that node, to count its statements." placeholder:"URL"`
	Concurrency int           `default:"64" help:"Requests in flight."`
	Duration    time.Duration `default:"5s" help:"How long."`
	Repeat      int           `default:"0" help:"Of 100 requests so many repeat the one before."`
	Header      []string      `help:"Header of every request, such as 'Authorization: Bearer t'." placeholder:"LINE" sep:"none"`
	Settings    kong.Plugins  `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (benchCmd) Help() string {
	return `An embedded node is measured with an upstream of its own, on a SQLite file that is removed afterwards, or on the store that
--store names: on the command line only, so that no store is written to by mistake. Its records expire after a minute.

Examples:

  probate bench
  probate bench --store postgres://probate@db/bench --concurrency 256 --repeat 20
  probate bench --url http://10.0.0.7:8080/orders/1/payments --internal http://10.0.0.7:8081 --header 'X-Tenant: t'`
}

// benchReport is what was measured.
type benchReport struct {
	Requests   int                `json:"requests"`
	Failed     int                `json:"failed"` // no answer, or not 2xx
	Seconds    float64            `json:"seconds"`
	PerSecond  float64            `json:"per_second"`
	P50        float64            `json:"p50_ms"`
	P90        float64            `json:"p90_ms"`
	P99        float64            `json:"p99_ms"`
	Max        float64            `json:"max_ms"`
	Answers    map[string]int     `json:"answers"`
	Statements map[string]float64 `json:"statements_per_request,omitempty"`
}

// Run implements the subcommand.
func (c *benchCmd) Run(ctx context.Context, e *env) (err error) {
	if c.Concurrency < 1 || c.Concurrency > 10_000 || c.Repeat < 0 || c.Repeat > 100 || c.Duration <= 0 {
		return usageError{errors.New("want --concurrency 1 to 10000, --repeat 0 to 100 and a --duration")}
	}
	l := load{url: c.URL, concurrency: c.Concurrency, duration: c.Duration, repeat: c.Repeat, header: http.Header{}}
	for _, line := range c.Header {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return usageError{fmt.Errorf("--header %q: want name: value", line)}
		}
		l.header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	count := func() (map[string]float64, error) { return nil, nil }
	if c.URL == "" {
		target, err := c.embed(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, target.end()) }()
		l.url, count = target.url, target.count
	} else if c.Internal != "" {
		count = func() (map[string]float64, error) { return scrape(ctx, strings.TrimSuffix(c.Internal, "/")+"/metrics") }
	}
	before, err := count()
	if err != nil {
		return err
	}
	report, err := l.run(ctx)
	if err != nil {
		return err
	}
	after, err := count()
	if err != nil {
		return err
	}
	for name, n := range after {
		if report.Statements == nil {
			report.Statements = map[string]float64{}
		}
		if n -= before[name]; n > 0 {
			report.Statements[name] = n / float64(max(report.Requests, 1))
		}
	}
	if err := e.show(report, report.write); err != nil {
		return err
	}
	if report.Failed > 0 {
		return fmt.Errorf("%d of %d requests failed", report.Failed, report.Requests)
	}
	return nil
}

func (r benchReport) write(w *text) {
	w.printf("%d requests in %.1f s: %.0f a second\n", r.Requests, r.Seconds, r.PerSecond)
	w.printf("latency: p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, max %.1f ms\n", r.P50, r.P90, r.P99, r.Max)
	for _, name := range slices.Sorted(maps.Keys(r.Answers)) {
		w.printf("answers %s: %d\n", name, r.Answers[name])
	}
	if r.Statements == nil {
		return
	}
	total := 0.0
	for _, name := range slices.Sorted(maps.Keys(r.Statements)) {
		w.printf("%s a request: %.3f\n", name, r.Statements[name])
		total += r.Statements[name]
	}
	w.printf("statements a request: %.3f\n", total)
}

// target is an embedded node, with the service behind it.
type target struct {
	url   string
	count func() (map[string]float64, error)
	end   func() error
}

func (c *benchCmd) embed(ctx context.Context) (*target, error) {
	folder, err := os.MkdirTemp("", "probate-bench")
	if err != nil {
		return nil, err
	}
	upstream, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	service := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the gateway sent it whole
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/things/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"1","state":"created","note":"`+strings.Repeat("x", 160)+`"}`)
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = service.Serve(upstream) })
	n, err := c.openNode(ctx, filepath.Join(folder, "probate.db"), "http://"+upstream.Addr().String())
	ended := make(chan error, 1)
	if err == nil {
		serving.Go(func() { ended <- n.run(ctx) })
		err = n.awaitServing(ctx)
	}
	t := &target{end: func() error {
		var faults []error
		if n != nil {
			n.takeover.Drain()
			faults = append(faults, <-ended, n.close())
		}
		faults = append(faults, service.Close(), os.RemoveAll(folder))
		serving.Wait()
		return errors.Join(faults...)
	}}
	if err != nil {
		return nil, errors.Join(err, t.end())
	}
	t.url = "http://" + n.public.Addr().String() + "/bench"
	t.count = func() (map[string]float64, error) {
		families, err := n.metrics.registry.Gather()
		return statementsOf(families), err
	}
	return t, nil
}

// openNode opens a node on loopback with one route.
func (c *benchCmd) openNode(ctx context.Context, file, upstream string) (*node, error) {
	flags := given(c.Settings)
	s := settings{flags: flags}
	config := s.readAll()
	if flags["store"] == "" {
		config.Store = "sqlite:" + file
	}
	config.Listen, config.Internal.Listen, config.Internal.Advertise = "127.0.0.1:0", "127.0.0.1:0", ""
	config.Internal.Allow = []string{"127.0.0.0/8"}
	config.MemoryBytes = max(config.MemoryBytes, -1)
	config.Routes = []Route{{
		Match: Match{Methods: []string{http.MethodPost}, Path: "/bench"}, Upstream: upstream, Operation: "bench",
		Principal: Principal{none: true}, Retention: time.Minute, Reconcile: Reconcile{reexecute: true},
	}}
	config.check(&s)
	if err := faulted(s.faults); err != nil {
		return nil, err
	}
	return openNode(ctx, config, noLog, &tracer{})
}

// awaitServing returns once the node serves.
func (n *node) awaitServing(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !n.Status().Serving() {
		select {
		case <-tick.C:
		case <-limit.Done():
			return fmt.Errorf("the node does not serve: it is %s", n.Status().State)
		}
	}
	return nil
}

// scrape reads how many statements a running node has sent.
func scrape(ctx context.Context, metrics string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, metrics, nil)
	if err != nil {
		return nil, usageError{err}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics of %s: status %d: %w", metrics, resp.StatusCode, err)
	}
	return statementsOf(slices.Collect(maps.Values(families))), nil
}

// statementsOf counts statements by name.
func statementsOf(families []*dto.MetricFamily) map[string]float64 {
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "probate_store_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				counts[l.GetValue()] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return counts
}
