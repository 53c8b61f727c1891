package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/sealed"
	"github.com/probate-dev/probate/takeover"
)

// metrics count what happens on this node. No key, realm or URL is a label.
type metrics struct {
	takeover.NoEvents // what is not counted

	registry *prometheus.Registry

	requests   *prometheus.CounterVec
	wait       *prometheus.HistogramVec
	execution  prometheus.Histogram
	probes     *prometheus.CounterVec
	takeovers  *prometheus.CounterVec
	fences     *prometheus.CounterVec
	reconciled *prometheus.CounterVec
	settled    *prometheus.CounterVec
	unsealable *prometheus.CounterVec
	purged     prometheus.Counter
	dropped    prometheus.Counter
	statements *prometheus.HistogramVec
	batch      prometheus.Histogram
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "probate_" + name, Help: help}, labels)
	}
	m := &metrics{
		registry:   prometheus.NewRegistry(),
		requests:   counter("requests_total", "Keyed requests, by how they were answered.", "route", "outcome"),
		probes:     counter("probes_total", "Answers of executors that were asked about a record.", "verdict"),
		takeovers:  counter("takeovers_total", "Records taken over by this node.", "reason"),
		fences:     counter("fences_total", "Executors that this node declared dead.", "reason"),
		reconciled: counter("reconciled_total", "Findings of reconcilers.", "finding"),
		settled:    counter("settled_total", "Records that this node brought to an end.", "state"),
		unsealable: counter("unsealable_total", "Stored values that could not be opened: their key is not here, or they were altered.", "reason"),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "probate_wait_seconds", Help: "From a keyed request to its answer.", Buckets: prometheus.ExponentialBuckets(0.001, 3, 12),
		}, []string{"route"}),
		execution: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "probate_execution_seconds", Help: "From a claim to its last write.", Buckets: prometheus.ExponentialBuckets(0.001, 3, 12),
		}),
		purged: prometheus.NewCounter(prometheus.CounterOpts{Name: "probate_purged_total", Help: "Expired records deleted by this node."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "probate_audit_dropped_total", Help: "Events that the audit has lost: they came faster than the store took them, or it was away.",
		}),
		statements: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "probate_store_seconds", Help: "Statements of the store, waiting for a connection included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 3, 10),
		}, []string{"statement"}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "probate_store_batch_size", Help: "Callers that one statement served.", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
	}
	m.begin()
	m.registry.MustRegister(m.requests, m.wait, m.execution, m.probes, m.takeovers, m.fences, m.reconciled, m.settled,
		m.unsealable, m.purged, m.statements, m.batch,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// begin makes the series whose labels are known, so that a rate can be taken of
// their first events.
func (m *metrics) begin() {
	for v := probe.Unknown; v <= probe.Silent; v++ {
		m.probes.WithLabelValues(v.String())
	}
	for _, reason := range []string{"executor fenced", "executor gone", "not running", "orphan", "outcome unknown", "sweep"} {
		m.takeovers.WithLabelValues(reason)
	}
	for _, kind := range []string{"probe", "lease"} {
		m.fences.WithLabelValues(kind)
	}
	for f := takeover.Undecidable; f <= takeover.Pending; f++ {
		m.reconciled.WithLabelValues(f.String())
	}
	for _, reason := range []sealed.Reason{sealed.NoKeys, sealed.UnknownKey, sealed.Corrupt} {
		m.unsealable.WithLabelValues(string(reason))
	}
	for _, s := range []records.State{records.Finalized, records.Unknown, records.Released} {
		m.settled.WithLabelValues(string(s))
	}
}

// watch adds what a node knows of itself, and what its store says.
func (m *metrics) watch(n *node) {
	gauge := func(name, help string, read func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "probate_" + name, Help: help}, read))
	}
	gauge("in_progress", "Records that this node runs.", func() float64 { return float64(n.takeover.Status().InProgress) })
	gauge("waiters", "Duplicates that wait on this node.", func() float64 { return float64(n.takeover.Waiting()) })
	gauge("heartbeat_age_seconds", "Since this node's last good heartbeat was sent; of a node that never had one, 0.",
		func() float64 { return heartbeatAge(n.takeover.Status()) })
	s := &survey{store: n.store, log: n.log, every: surveyEvery, self: func() records.ExecutorID { return n.takeover.Status().Executor }}
	gauge("unknown_records", "Records of which nobody can tell what came of them, counted in bounded steps.",
		func() float64 { unknown, _ := s.read(); return float64(unknown) })
	gauge("oldest_in_progress_seconds", "Age of the oldest record in progress that is this node's, or a dead node's.",
		func() float64 { _, oldest := s.read(); return oldest.Seconds() })
}

// heartbeatAge is 0 where there was no heartbeat yet: an age since the year 1
// would set off alarms.
func heartbeatAge(s probe.Status) float64 {
	if s.HeartbeatAge > 365*24*time.Hour {
		return 0
	}
	return s.HeartbeatAge.Seconds()
}

// Answered implements api.Events.
func (m *metrics) Answered(route, outcome string, took time.Duration) {
	m.requests.WithLabelValues(route, outcome).Inc()
	m.wait.WithLabelValues(route).Observe(took.Seconds())
}

// Probed implements takeover.Events, as all below.
func (m *metrics) Probed(_ records.Record, v probe.Verdict) {
	m.probes.WithLabelValues(v.String()).Inc()
}

// Fenced counts by kind of reason: the reason itself names executors.
func (m *metrics) Fenced(_ records.ExecutorID, reason string) {
	kind := "probe"
	if reason == takeover.ReasonLeaseExpired {
		kind = "lease"
	}
	m.fences.WithLabelValues(kind).Inc()
}

// TookOver counts a take-over.
func (m *metrics) TookOver(_ records.Record, reason string) {
	m.takeovers.WithLabelValues(reason).Inc()
}

// Reconciled counts a finding.
func (m *metrics) Reconciled(_ records.Record, f takeover.Finding) {
	m.reconciled.WithLabelValues(f.Kind.String()).Inc()
}

// Settled counts a record's end.
func (m *metrics) Settled(_ records.Record, to records.State, took time.Duration, _ string) {
	m.settled.WithLabelValues(string(to)).Inc()
	m.execution.Observe(took.Seconds())
}

// Purged counts deleted records.
func (m *metrics) Purged(count int) { m.purged.Add(float64(count)) }

// unsealed counts a value that could not be opened.
func (m *metrics) unsealed(r sealed.Reason) { m.unsealable.WithLabelValues(string(r)).Inc() }

// observe hears of every statement of the PostgreSQL store.
func (m *metrics) observe(o postgres.Observation) {
	m.statements.WithLabelValues(o.Name).Observe(o.Took.Seconds())
	m.batch.Observe(float64(o.Rows))
}

// committed hears of every transaction of the embedded store.
func (m *metrics) committed(decisions int) { m.batch.Observe(float64(decisions)) }
