package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// load sends keyed requests, each worker one after the other.
type load struct {
	url         string
	concurrency int
	duration    time.Duration
	repeat      int // of 100
	header      http.Header
}

// tally is what one worker has seen.
type tally struct {
	took    []time.Duration
	answers map[string]int
	failed  int
}

func (l load) run(ctx context.Context) (benchReport, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: l.concurrency, MaxConnsPerHost: l.concurrency}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	begun := time.Now()
	tallies := make([]tally, l.concurrency)
	var workers sync.WaitGroup
	for i := range tallies {
		workers.Go(func() { tallies[i] = l.work(ctx, client, begun.Add(l.duration)) })
	}
	workers.Wait()
	if ctx.Err() != nil {
		return benchReport{}, context.Cause(ctx)
	}
	return summary(tallies, time.Since(begun)), nil
}

func (l load) work(ctx context.Context, client *http.Client, until time.Time) tally {
	t := tally{answers: map[string]int{}}
	key := ""
	for ctx.Err() == nil && time.Now().Before(until) {
		if key == "" || rand.IntN(100) >= l.repeat {
			key = uuid.NewString()
		}
		begun := time.Now()
		answer, ok := l.send(ctx, client, key)
		t.took = append(t.took, time.Since(begun))
		t.answers[answer]++
		if !ok {
			t.failed++
		}
	}
	return t
}

// send sends one request and names its answer.
func (l load) send(ctx context.Context, client *http.Client, key string) (answer string, ok bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, strings.NewReader(`{"amount":1}`))
	if err != nil {
		return "invalid", false
	}
	req.Header = l.header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := client.Do(req)
	if err != nil {
		return "none", false
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return "cut off", false
	}
	answer = fmt.Sprint(resp.StatusCode)
	if how := resp.Header.Get("Idempotency-Status"); how != "" {
		answer += " " + how
	}
	return answer, resp.StatusCode/100 == 2
}

func summary(tallies []tally, took time.Duration) benchReport {
	r := benchReport{Seconds: took.Seconds(), Answers: map[string]int{}}
	var all []time.Duration
	for _, t := range tallies {
		all = append(all, t.took...)
		r.Failed += t.failed
		for name, n := range t.answers {
			r.Answers[name] += n
		}
	}
	slices.Sort(all)
	r.Requests = len(all)
	r.PerSecond = float64(len(all)) / took.Seconds()
	r.P50, r.P90, r.P99, r.Max = percentile(all, 50), percentile(all, 90), percentile(all, 99), percentile(all, 100)
	return r
}

// percentile is the smallest of the sorted durations that p per cent do not
// exceed, in milliseconds (nearest rank).
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return float64(sorted[max(rank, 0)].Microseconds()) / 1000
}
