package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

type recordsShowCmd struct {
	Record   string       `arg:"" help:"The record's id: 64 hexadecimal digits, as in operation_ref."`
	Settings kong.Plugins `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (recordsShowCmd) Help() string {
	return `The owner is asked from this host, as any node would ask it, so this host must be able to reach the nodes' internal listeners.

Example:

  probate records show 5b1f7a…  # operation_ref of the answer that a client got`
}

// executorView is an executor as JSON.
type executorView struct {
	Executor     string     `json:"executor"`
	Slot         string     `json:"slot"`
	State        string     `json:"state"`
	URL          string     `json:"url"`
	Policy       string     `json:"policy"`
	Beat         int64      `json:"beat"`
	HeartbeatMS  int64      `json:"heartbeat_age_ms"`
	LeaseTTLMS   int64      `json:"lease_ttl_ms"`
	Stale        bool       `json:"stale"`
	AttestedAt   *time.Time `json:"attested_at,omitempty"`
	FencedAt     *time.Time `json:"fenced_at,omitempty"`
	FencedBy     string     `json:"fenced_by,omitempty"`
	FencedReason string     `json:"fenced_reason,omitempty"`
}

func viewExecutor(x records.Executor) executorView {
	v := executorView{
		Executor: x.ID.String(), Slot: x.Slot, State: string(x.State), URL: x.URL, Policy: string(x.Policy), Beat: x.Beat,
		HeartbeatMS: x.HeartbeatAge.Milliseconds(), LeaseTTLMS: x.LeaseTTL.Milliseconds(), Stale: x.Stale(),
		AttestedAt: instant(x.AttestedAt), FencedAt: instant(x.FencedAt), FencedReason: x.FencedReason,
	}
	switch {
	case x.State != records.Fenced:
	case x.FencedBy == records.ExecutorID{}:
		v.FencedBy = "operator"
	default:
		v.FencedBy = x.FencedBy.String()
	}
	return v
}

// recordReport is everything that records show can find out.
type recordReport struct {
	Record      recordView    `json:"record"`
	Executor    *executorView `json:"owner,omitempty"` // nil: its row was purged
	Verdict     string        `json:"verdict,omitempty"`
	Why         string        `json:"verdict_reason,omitempty"`
	Explanation string        `json:"explanation"`
}

// Run implements the subcommand.
func (c *recordsShowCmd) Run(ctx context.Context, e *env) error {
	id, err := records.ParseID(c.Record)
	if err != nil {
		return usageError{err}
	}
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	var report recordReport
	err = e.withStore(ctx, config, func(s records.Store) error {
		report, err = reportRecord(ctx, config, s, id)
		return err
	})
	if errors.Is(err, records.ErrNotFound) {
		return fmt.Errorf("record %s: %w: it was never made here, or was purged after its retention", id, records.ErrNotFound)
	}
	if err != nil {
		return err
	}
	return e.show(report, func(w *text) { report.write(e, w) })
}

func reportRecord(ctx context.Context, config Config, s records.Store, id records.ID) (recordReport, error) {
	h, err := s.Load(ctx, id)
	if err != nil {
		return recordReport{}, err
	}
	report := recordReport{Record: viewRecord(h.Record)}
	if h.Executor.ID != (records.ExecutorID{}) {
		v := viewExecutor(h.Executor)
		report.Executor = &v
	}
	var seen probe.Observation
	if h.Record.State == records.InProgress && !h.Executor.State.Terminal() {
		if seen, err = ask(ctx, config, s, h.Executor, h.Record.ID, h.Record.Epoch); err != nil {
			return report, err
		}
		report.Verdict = seen.Verdict.String()
		if seen.Err != nil {
			report.Why = seen.Err.Error()
		}
	}
	report.Explanation = explain(h, seen.Verdict)
	return report, nil
}

// ask asks an executor from here, as another node would.
func ask(ctx context.Context, config Config, s records.Store, x records.Executor, id records.ID, epoch int64) (probe.Observation, error) {
	t, err := config.Internal.TLS.load()
	if err != nil {
		return probe.Observation{}, configError{err}
	}
	known, err := s.ListExecutors(ctx, records.Active, records.Draining)
	if err != nil {
		return probe.Observation{}, err
	}
	asker, err := newAsker(config, t, func(id records.ExecutorID) (records.Executor, bool) {
		for _, k := range known {
			if k.ID == id {
				return k, true
			}
		}
		return records.Executor{}, false
	})
	if err != nil {
		return probe.Observation{}, configError{err}
	}
	defer func() { _ = asker.Close() }() // it has no error
	return asker.Probe(ctx, x, id, epoch), nil
}

// explain says what the state of a record means and what, if anything, is to
// be done.
func explain(h records.Held, v probe.Verdict) string {
	switch h.Record.State {
	case records.Finalized:
		return "It was executed, and its answer is replayed until it expires. Nothing is to be done."
	case records.Released:
		return "The attempt was given up before anything was done, or failed in a way that says nothing about the operation. The key is free: a client may send it again."
	case records.Unknown:
		return "It was executed, perhaps, and nobody can tell what came of it. Look at the service for the operation and resource above. " +
			"Duplicates are answered outcome_unknown until it expires; if its route gets a reconcile, the next duplicate asks it."
	case records.InProgress:
	}
	x := h.Executor
	if x.State.Terminal() {
		return fmt.Sprintf("Its owner is %s. The next duplicate takes it over at once; without one, a node whose configuration has its operation does so when it next looks.", x.State)
	}
	switch v {
	case probe.Running:
		return "Its owner has signed that it is running it. Duplicates wait. It ends by the route's work_timeout at the latest."
	case probe.NotRunning:
		return "Its owner has signed that it is not running it: a reply of the store was lost. The next duplicate takes it over at once, and so does the owner itself when it next looks for its orphans."
	case probe.Replaced:
		return "A newer process in its owner's slot answers. The next duplicate takes it over."
	case probe.Down:
		return "Nothing listens where its owner should be. A node that is asked for it confirms that, for some hundred milliseconds if the owner was attested, fences the owner and takes over. Send the request again, or see probate executors list."
	case probe.Silent:
		return "Its owner does not answer. A node that is asked for it confirms that for takeover.probe_budget, and takes over if no heartbeat lands meanwhile."
	case probe.Stranger:
		return "Another executor answers at its owner's URL: the address was used again, or a balancer stands in front. Each node needs an advertise of its own."
	case probe.Unknown:
	}
	return "What answers at its owner's URL is not its owner, or cannot be understood from here: see the reason. It may be this host that cannot reach the node; " +
		"internal.token, internal.tls and internal.allow must be those of the fleet. The nodes decide by their own probes."
}

func (r recordReport) write(e *env, w *text) {
	line := func(name, value string, c colour) { w.printf("%-12s %s\n", name, e.paint(c, value)) }
	v := r.Record
	line("record", v.Record, plain)
	line("state", v.State, stateColour(v.State))
	line("operation", harmless(v.Operation), plain)
	line("resource", harmless(v.Resource), plain)
	line("realm", harmless(v.Realm), plain)
	line("key", harmless(v.Key), plain)
	line("epoch", fmt.Sprint(v.Epoch), plain)
	line("take-overs", fmt.Sprint(v.Takeovers), plain)
	line("begun", v.CreatedAt.Format(time.RFC3339)+", "+age(time.Since(v.CreatedAt))+" ago", plain)
	if v.FinalizedAt != nil {
		line("ended", v.FinalizedAt.Format(time.RFC3339), plain)
	}
	if v.ExpiresAt != nil {
		line("expires", v.ExpiresAt.Format(time.RFC3339), plain)
	}
	if v.Status != 0 {
		line("answer", fmt.Sprint(v.Status), plain)
	}
	line("owner", v.Executor+" at "+v.ExecutorURL, plain)
	if x := r.Executor; x != nil {
		line("", fmt.Sprintf("slot %s, %s, last heartbeat %s ago", x.Slot, x.State, age(time.Duration(x.HeartbeatMS)*time.Millisecond)), stateColour(x.State))
		if x.FencedReason != "" {
			line("", "fenced by "+x.FencedBy+": "+x.FencedReason, plain)
		}
	}
	if r.Verdict != "" {
		line("asked", strings.TrimSuffix(r.Verdict+": "+r.Why, ": "), plain)
	}
	w.printf("\n%s\n", r.Explanation)
}
