package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/transfer"
)

// flowMetrics count what this node does with data flows. They are there only
// where data is moved.
type flowMetrics struct {
	bytes     prometheus.Counter
	retries   prometheus.Counter
	ended     *prometheus.CounterVec
	callbacks *prometheus.CounterVec
}

var _ transfer.Events = (*flowMetrics)(nil)

// flows adds the metrics of a data plane.
func (m *metrics) flows() *flowMetrics {
	f := &flowMetrics{
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "probate_flow_bytes_total", Help: "Bytes of data flows that this node has moved.",
		}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "probate_flow_retries_total", Help: "Faults of sources and sinks after which this node has tried again.",
		}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "probate_flows_ended_total", Help: "Data flows that this node has brought to an end.",
		}, []string{"state"}),
		callbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "probate_flow_callbacks_total", Help: "Callbacks that this node has sent to control planes, by what they came to.",
		}, []string{"outcome"}),
	}
	for _, s := range []records.FlowState{records.FlowCompleted, records.FlowTerminated} {
		f.ended.WithLabelValues(string(s))
	}
	for _, o := range transfer.Outcomes {
		f.callbacks.WithLabelValues(string(o))
	}
	m.registry.MustRegister(f.bytes, f.retries, f.ended, f.callbacks)
	return f
}

// Moved implements [transfer.Events], as all below.
func (f *flowMetrics) Moved(bytes int64) { f.bytes.Add(float64(bytes)) }

// Retried counts what was tried again.
func (f *flowMetrics) Retried(faults int) { f.retries.Add(float64(faults)) }

// Ended counts a flow's end.
func (f *flowMetrics) Ended(s records.FlowState) { f.ended.WithLabelValues(string(s)).Inc() }

// Told counts a delivery.
func (f *flowMetrics) Told(o transfer.Outcome) { f.callbacks.WithLabelValues(string(o)).Inc() }

// watchFlows adds what a data plane knows of itself, and what its store says.
func (m *metrics) watchFlows(p *transfer.Plane, flows records.Flows, log *slog.Logger) {
	outbox := &outbox{flows: flows, log: log}
	m.registry.MustRegister(copies{p}, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "probate_flow_callbacks_waiting", Help: "Callbacks of the fleet that were not delivered yet, counted up to 10,000.",
	}, func() float64 { return float64(outbox.read()) }))
}

// copies are gauges that are read together, so that they go together.
type copies struct{ plane *transfer.Plane }

var copiesDesc = prometheus.NewDesc("probate_flows",
	"Data flows of this node: those that move, and those that wait for their place.", []string{"state"}, nil)

// Describe implements [prometheus.Collector].
func (copies) Describe(to chan<- *prometheus.Desc) { to <- copiesDesc }

// Collect implements [prometheus.Collector].
func (c copies) Collect(to chan<- prometheus.Metric) {
	moving, waiting := c.plane.Copies()
	to <- prometheus.MustNewConstMetric(copiesDesc, prometheus.GaugeValue, float64(moving), "moving")
	to <- prometheus.MustNewConstMetric(copiesDesc, prometheus.GaugeValue, float64(waiting), "waiting")
}

// outbox is how many callbacks waited when somebody last scraped, but for a few
// seconds.
type outbox struct {
	flows records.Flows
	log   *slog.Logger

	mu    sync.Mutex
	made  time.Time
	count int
}

const (
	outboxMost  = 10_000          // as far as it is counted
	outboxEvery = 2 * time.Second // bounds what scrapes ask of the store
)

func (o *outbox) read() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.made) < outboxEvery {
		return o.count
	}
	ctx, cancel := context.WithTimeout(context.Background(), surveyTimeout)
	defer cancel()
	n, err := o.flows.WaitingCallbacks(ctx, outboxMost)
	if err != nil {
		o.log.WarnContext(ctx, "callbacks not counted", "error", err)
	} else {
		o.count = n
	}
	o.made = time.Now()
	return o.count
}
