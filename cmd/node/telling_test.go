package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
	"github.com/probate-dev/probate/takeover"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	s, client := newService(t), browser(t)
	n := startEmbedded(t, "--config", configure(t, sqliteStore(t), s.URL))
	ready(t, client, n.public)
	var loading sync.WaitGroup
	for w := range 4 {
		loading.Go(func() {
			for i := range 25 {
				order(t.Context(), client, n.public, fmt.Sprintf("secret-key-%d-%d", w, i/2), "")
				if status, _ := get(t.Context(), client, n.internal+"/metrics"); i%10 == 0 && status != http.StatusOK {
					t.Errorf("metrics under load: %d", status)
				}
			}
		})
	}
	loading.Wait()
	_, text := get(t.Context(), client, n.internal+"/metrics")
	for _, series := range []string{
		`probate_requests_total{outcome="executed",route="order-orders"} 52`,
		`probate_requests_total{outcome="replayed",route="order-orders"} 48`,
		`probate_execution_seconds_count 52`,
		`probate_wait_seconds_count{route="order-orders"} 100`,
		`probate_probes_total{verdict="silent"} 0`,
		`probate_takeovers_total{reason="executor fenced"} 0`,
		`probate_fences_total{reason="lease"} 0`,
		`probate_in_progress `,
		`probate_waiters 0`,
		`probate_unknown_records 0`,
		`probate_oldest_in_progress_seconds `,
		`probate_heartbeat_age_seconds `,
		`probate_purged_total 0`,
		`probate_store_seconds_count{statement="reserve"} `,
		`probate_store_batch_size_count `,
		`go_goroutines `,
	} {
		if !strings.Contains(text, "\n"+series) {
			t.Errorf("no series %s", series)
		}
	}
	for _, secret := range []string{"secret-key", s.URL} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in the metrics", secret)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestSurvey(t *testing.T) {
	t.Parallel()
	p := newPeopled(t)
	path, _ := sqlitePath(p.store)
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "probate"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	self := p.executor
	s := &survey{store: store, log: noLog, every: time.Hour, self: func() records.ExecutorID { return self }}
	unknown, oldest := s.read()
	if unknown != 1 || oldest <= 0 || oldest > time.Minute {
		t.Errorf("%d unknown, oldest %s", unknown, oldest)
	}
	// It is not read again before its time, and orphans count for everybody.
	self = records.ExecutorID(records.NewToken())
	if _, oldest := s.read(); oldest == 0 {
		t.Error("read again at once")
	}
	s.every = 0
	if _, oldest := s.read(); oldest != 0 {
		t.Errorf("another's record in progress is the oldest: %s", oldest)
	}
	if _, err := store.FenceByOperator(t.Context(), records.Condemnation{Executor: p.executor, Actor: "test", Reason: "test", Force: true}); err != nil {
		t.Fatal(err)
	}
	if _, oldest := s.read(); oldest == 0 {
		t.Error("an orphan is not counted")
	}
}

func TestTraces(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	tr, err := tracerTo(t.Context(), sdktrace.WithSyncer(exporter))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.close(t.Context(), noLog)
	s, client := newService(t), browser(t)
	config, err := readConfig(settings{file: configure(t, sqliteStore(t), s.URL)})
	if err != nil {
		t.Fatal(err)
	}
	n, err := openNode(t.Context(), config, noLog, tr)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- n.run(context.WithoutCancel(t.Context())) }()
	defer func() {
		n.takeover.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = n.close()
	}()
	base := "http://" + n.public.Addr().String()
	ready(t, client, base)

	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "k")
	req.Header.Set("Traceparent", parent)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if got := order(t.Context(), client, base, "k", ""); got.how != "replayed" {
		t.Fatalf("%+v", got)
	}

	spans := exporter.GetSpans()
	if len(spans) != 2 {
		t.Fatalf("%d spans for two coordinations", len(spans))
	}
	first, second := spans[0], spans[1]
	s.mu.Lock()
	id := s.headers[0].Get("Idempotency-Operation")
	s.mu.Unlock()
	for _, want := range []string{"probate.record=" + id, "probate.operation=order-orders", "probate.outcome=executed", "probate.epoch="} {
		if !strings.Contains(attributes(first), want) {
			t.Errorf("%s is not among %s", want, attributes(first))
		}
	}
	if !strings.Contains(attributes(second), "probate.outcome=replayed") {
		t.Errorf("second: %s", attributes(second))
	}
	if first.Parent.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("the client's trace is not continued: %s", first.Parent.TraceID())
	}
	if len(second.Links) != 1 || second.Links[0].SpanContext.SpanID() != first.SpanContext.SpanID() {
		t.Errorf("the replay is not linked to the execution: %v", second.Links)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.headers[0].Get("Traceparent"); !strings.Contains(got, first.SpanContext.SpanID().String()) {
		t.Errorf("the service continues %q, not the coordination", got)
	}
}

func attributes(s tracetest.SpanStub) string {
	var b strings.Builder
	for _, a := range s.Attributes {
		fmt.Fprintf(&b, "%s=%s ", a.Key, a.Value.String())
	}
	return b.String()
}

func TestExecutions(t *testing.T) {
	t.Parallel()
	var x executions
	idOf := func(i int) records.ID { return records.Key{Key: fmt.Sprint(i)}.ID() }
	for i := range rememberedExecutions + 10 {
		x.add(idOf(i), trace.SpanContext{})
	}
	_, first := x.find(idOf(9))
	_, kept := x.find(idOf(10))
	if first || !kept || len(x.spans) != rememberedExecutions {
		t.Errorf("the oldest is remembered: %t, the next: %t, %d in all", first, kept, len(x.spans))
	}
}

// TestTraces_AreSent sets the environment, which is the process'.
func TestTraces_AreSent(t *testing.T) {
	var mu sync.Mutex
	var paths []string
	var bodies strings.Builder
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		paths = append(paths, r.URL.Path)
		_, _ = io.Copy(&bodies, r.Body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	tr, err := newTracer(t.Context(), map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL})
	if err != nil {
		t.Fatal(err)
	}
	answering := coordinatorFunc(func() (takeover.Answer, error) { return takeover.Answer{Outcome: takeover.Executed}, nil })
	if _, err := tr.around(answering).Do(t.Context(), takeover.Request{Operation: "pay"}, nil); err != nil {
		t.Fatal(err)
	}
	tr.close(t.Context(), noLog)
	mu.Lock()
	defer mu.Unlock()
	if len(paths) != 1 || paths[0] != "/v1/traces" || !strings.Contains(bodies.String(), "probate.outcome") || !strings.Contains(bodies.String(), "coordinate pay") {
		t.Errorf("the collector got %q: %q", paths, bodies.String())
	}
}

func TestTraces_AreMadeForNobodyUnlessAsked(t *testing.T) {
	t.Parallel()
	for name, environ := range map[string]map[string]string{
		"nothing is set": nil,
		"none":           {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_TRACES_EXPORTER": "none"},
		"disabled":       {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_SDK_DISABLED": "true"},
	} {
		tr, err := newTracer(t.Context(), environ)
		if err != nil || tr.provider != nil {
			t.Errorf("%s: %+v, %v", name, tr, err)
		}
		c := coordinatorFunc(nil)
		if _, plain := tr.around(c).(coordinatorFunc); !plain {
			t.Errorf("%s: something is in the way of coordinations", name)
		}
	}
	_, err := newTracer(t.Context(), map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
	if exitCode(err) != exitUsage {
		t.Errorf("a protocol that is not spoken: %v", err)
	}
}

type coordinatorFunc func() (takeover.Answer, error)

var _ api.Coordinator = coordinatorFunc(nil)

func (f coordinatorFunc) Do(context.Context, takeover.Request, takeover.Work) (takeover.Answer, error) {
	return f()
}
