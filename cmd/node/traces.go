package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// tracer makes one span for each coordination, if somebody wants them: if one
// of OpenTelemetry's standard variables names an OTLP endpoint. The zero
// tracer makes none.
type tracer struct {
	provider *sdktrace.TracerProvider // nil: nobody wants spans
	spans    trace.Tracer
	executed executions
}

var propagator = propagation.TraceContext{}

// newTracer reads OpenTelemetry's standard variables: where to send spans, by
// which protocol, with which headers.
func newTracer(ctx context.Context, environ map[string]string) (*tracer, error) {
	if environ["OTEL_SDK_DISABLED"] == "true" || environ["OTEL_TRACES_EXPORTER"] == "none" ||
		environ["OTEL_EXPORTER_OTLP_ENDPOINT"] == "" && environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == "" {
		return &tracer{}, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := environ[name]; p != "" && p != "http/protobuf" {
			return nil, configError{fmt.Errorf("%s: %q is not spoken here, only http/protobuf (usually port 4318)", name, p)}
		}
	}
	exporter, err := otlptracehttp.New(ctx) // reads the variables itself
	if err != nil {
		return nil, configError{fmt.Errorf("open trace exporter: %w", err)}
	}
	return tracerTo(ctx, sdktrace.WithBatcher(exporter))
}

func tracerTo(ctx context.Context, option sdktrace.TracerProviderOption) (*tracer, error) {
	named, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "probate"), attribute.String("service.version", version())), resource.WithFromEnv())
	if err != nil {
		return nil, configError{fmt.Errorf("describe this process: %w", err)}
	}
	t := &tracer{provider: sdktrace.NewTracerProvider(option, sdktrace.WithResource(named))}
	t.spans = t.provider.Tracer("github.com/probate-dev/probate")
	return t, nil
}

// close sends what is left.
func (t *tracer) close(ctx context.Context, log *slog.Logger) {
	if t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		log.WarnContext(ctx, "spans were lost", "error", err)
	}
}

type headersKey struct{}

// serve lets the coordination of this request continue the client's trace, and
// the service behind it continue the coordination's.
func (t *tracer) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if t.provider != nil {
		ctx := propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		r = r.WithContext(context.WithValue(ctx, headersKey{}, r.Header))
	}
	next.ServeHTTP(w, r)
}

// around is the coordinator with a span around each coordination.
func (t *tracer) around(c api.Coordinator) api.Coordinator {
	if t.provider == nil {
		return c
	}
	return traced{t, c}
}

type traced struct {
	*tracer
	next api.Coordinator
}

// Do implements [api.Coordinator].
func (t traced) Do(ctx context.Context, req takeover.Request, work takeover.Work) (takeover.Answer, error) {
	id := req.Key.ID()
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(
		attribute.String("probate.record", id.String()), attribute.String("probate.operation", req.Operation))}
	ctx, span := t.spans.Start(ctx, "coordinate "+req.Operation, options...)
	defer span.End()
	if headers, ok := ctx.Value(headersKey{}).(http.Header); ok {
		propagator.Inject(ctx, propagation.HeaderCarrier(headers)) // the request goes upstream with them
	}
	answer, err := t.next.Do(ctx, req, work)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(attribute.String("probate.outcome", "error"))
		return answer, err
	}
	span.SetAttributes(attribute.String("probate.outcome", answer.Outcome.String()), attribute.Int64("probate.epoch", answer.Record.Epoch))
	switch answer.Outcome {
	case takeover.Executed, takeover.TookOver:
		t.executed.add(id, span.SpanContext())
	case takeover.Replayed, takeover.Waited, takeover.Reconciled:
		if by, ok := t.executed.find(id); ok {
			span.AddLink(trace.Link{SpanContext: by})
		}
	case takeover.InProgress, takeover.Reused, takeover.OutcomeUnknown:
	}
	return answer, nil
}

// rememberedExecutions is how many spans a replay can be linked to.
const rememberedExecutions = 10_000

// executions remembers in which span a record was executed here, of the last
// ones. Another node's replay is not linked: the store has no place for it.
type executions struct {
	mu     sync.Mutex
	spans  map[records.ID]trace.SpanContext
	oldest []records.ID // a ring, once it is full
	next   int
}

func (x *executions) add(id records.ID, s trace.SpanContext) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.spans == nil {
		x.spans = map[records.ID]trace.SpanContext{}
	}
	if _, again := x.spans[id]; again {
		x.spans[id] = s
		return
	}
	if len(x.oldest) < rememberedExecutions {
		x.oldest = append(x.oldest, id)
	} else {
		delete(x.spans, x.oldest[x.next])
		x.oldest[x.next] = id
		x.next = (x.next + 1) % rememberedExecutions
	}
	x.spans[id] = s
}

func (x *executions) find(id records.ID) (trace.SpanContext, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, ok := x.spans[id]
	return s, ok
}
