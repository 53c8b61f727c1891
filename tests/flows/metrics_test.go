//go:build unix

package flows_test

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// metrics are the series of a node whose names begin with probate_flow.
func (n *node) metrics() map[string]float64 {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, n.Internal+"/metrics", http.NoBody)
	if err != nil {
		n.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	series := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || !strings.HasPrefix(name, "probate_flow") {
			continue
		}
		if series[name], err = strconv.ParseFloat(value, 64); err != nil {
			n.t.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		n.t.Fatal(err)
	}
	return series
}

// scrapes waits until a node's series have these values.
func (n *node) scrapes(want map[string]float64) {
	n.t.Helper()
	var got map[string]float64
	defer func() {
		if n.t.Failed() {
			n.t.Logf("the metrics are %v, want %v", got, want)
		}
	}()
	within(n.t, "the metrics say so", func() bool {
		got = n.metrics()
		for name, value := range want {
			if is, there := got[name]; !there || is != value {
				return false
			}
		}
		return true
	})
}

// TestMetrics is about what is seen of data flows by who scrapes a node.
func TestMetrics(t *testing.T) {
	t.Parallel()
	p := newPlane(t, size)
	p.extra = "  flows: 1\n"
	p.control.answer("completed", http.StatusServiceUnavailable)
	n := p.start("a")[0]
	n.scrapes(map[string]float64{
		`probate_flows{state="moving"}`: 0, `probate_flows{state="waiting"}`: 0, "probate_flow_bytes_total": 0, "probate_flow_retries_total": 0,
		`probate_flows_ended_total{state="COMPLETED"}`: 0, `probate_flows_ended_total{state="TERMINATED"}`: 0,
		`probate_flow_callbacks_total{outcome="delivered"}`: 0, `probate_flow_callbacks_total{outcome="failed"}`: 0,
		`probate_flow_callbacks_total{outcome="refused"}`: 0, `probate_flow_callbacks_total{outcome="given_up"}`: 0,
		"probate_flow_callbacks_waiting": 0,
	})
	p.begins(n, "first")
	if r := n.ask(http.MethodPost, "/dataflows/start", push("second", toFile("out", "second"))); r.status != http.StatusOK {
		t.Fatalf("start: %s", r)
	}
	n.scrapes(map[string]float64{
		`probate_flows{state="moving"}`: 1, `probate_flows{state="waiting"}`: 1,
	})
	if moved := n.metrics()["probate_flow_bytes_total"]; moved == 0 || moved > size/2 {
		t.Errorf("%v bytes moved, of the half that the source gave", moved)
	}
	n.ask(http.MethodPost, "/dataflows/second/terminate", word1)
	p.from.allow(size)
	n.becomes("first", "COMPLETED")
	p.control.hears("first", "completed")
	n.scrapes(map[string]float64{
		`probate_flows{state="moving"}`: 0, `probate_flows{state="waiting"}`: 0, "probate_flow_bytes_total": size,
		`probate_flows_ended_total{state="COMPLETED"}`: 1, `probate_flows_ended_total{state="TERMINATED"}`: 1,
		`probate_flow_callbacks_total{outcome="delivered"}`: 1, `probate_flow_callbacks_total{outcome="failed"}`: 1,
	})
	gone := func(id string) {
		n.ask(http.MethodPost, "/dataflows/start", message(id, httpPush, map[string]any{"dataAddress": toFile("out", id), "datasetId": "gone"}))
	}
	p.control.answer("errored", http.StatusBadRequest)
	gone("refused")
	n.scrapes(map[string]float64{
		`probate_flows_ended_total{state="TERMINATED"}`: 2, `probate_flow_callbacks_total{outcome="refused"}`: 1, "probate_flow_callbacks_waiting": 0,
	})
	p.control.answer("errored", 0) // it never comes back
	gone("waiting")
	n.scrapes(map[string]float64{"probate_flow_callbacks_waiting": 1})
	n.scrapes(map[string]float64{"probate_flow_callbacks_waiting": 0, `probate_flow_callbacks_total{outcome="delivered"}`: 2})
}
