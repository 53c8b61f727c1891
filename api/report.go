package api

import (
	"context"
	"errors"

	"github.com/probate-dev/probate/records"
)

// Sight is what asking an executor about a record has shown, in the probe's
// words.
type Sight struct {
	Verdict string // running, not_running, replaced, stranger, down, silent, unknown
	Reason  string // why it is that one, if it is no signed answer
}

// Ask asks the executor that a record names whether it runs the record.
type Ask func(ctx context.Context, h records.Held) (Sight, error)

// Reporter finds out all there is to say about records and executors.
type Reporter struct {
	Store     AdminStore
	Ask       Ask                     // nil: nobody is asked
	Waiting   func(id records.ID) int // duplicates that wait where this is; nil: not known
	Takeovers int                     // the limit of executions after take-overs; 0: not known
}

// RecordReport is everything that can be found out about a record.
type RecordReport struct {
	Record      RecordView    `json:"record"`
	Owner       *ExecutorView `json:"owner,omitempty"` // nil: its row was purged
	Verdict     string        `json:"verdict,omitempty"`
	Why         string        `json:"verdict_reason,omitempty"`
	Waiters     *int          `json:"waiters,omitempty"` // on the node that was asked
	Events      []EventView   `json:"events"`            // the last ones, the oldest first
	Explanation string        `json:"explanation"`       // why it is where it is, and what will happen
}

// Outline reads a record for an operator: also one of which something cannot be
// unsealed here, without that.
func Outline(ctx context.Context, s interface {
	Load(ctx context.Context, id records.ID) (records.Held, error)
}, id records.ID,
) (h records.Held, sealed bool, err error) {
	h, err = s.Load(ctx, id)
	if e, ok := errors.AsType[*records.SealedError](err); ok {
		return e.Held, true, nil
	}
	return h, false, err
}

// Record reports about a record. ErrNotFound.
func (p Reporter) Record(ctx context.Context, id records.ID) (RecordReport, error) {
	h, sealed, err := Outline(ctx, p.Store, id)
	if err != nil {
		return RecordReport{}, err
	}
	known := facts{held: h, sealed: sealed, limit: p.Takeovers}
	if known.events, err = p.latest(ctx, records.EventFilter{Record: id}); err != nil {
		return RecordReport{}, err
	}
	report := RecordReport{Record: viewRecord(h.Record), Events: views(known.events, viewEvent)}
	if h.Executor.ID != (records.ExecutorID{}) {
		v := ViewExecutor(h.Executor)
		report.Owner = &v
	}
	if p.Waiting != nil {
		known.waiters = p.Waiting(id)
		report.Waiters = &known.waiters
	}
	if p.Ask != nil && h.Record.State == records.InProgress && !h.Executor.State.Terminal() {
		seen, err := p.Ask(ctx, h)
		if err != nil {
			return report, err
		}
		report.Verdict, report.Why = seen.Verdict, seen.Reason
	}
	known.verdict = report.Verdict
	report.Explanation = known.explain()
	return report, nil
}

// ExecutorReport is everything that can be found out about an executor.
type ExecutorReport struct {
	Executor    ExecutorView `json:"executor"`
	Records     []RecordView `json:"in_progress"` // the first of them
	More        bool         `json:"more"`        // there are others
	Events      []EventView  `json:"events"`
	Explanation string       `json:"explanation"`
}

// Executor reports about an executor. ErrNotFound.
func (p Reporter) Executor(ctx context.Context, id records.ExecutorID) (ExecutorReport, error) {
	x, err := p.Store.LoadExecutor(ctx, id)
	if err != nil {
		return ExecutorReport{}, err
	}
	held, err := p.Store.InProgress(ctx, id, records.ID{}, defaultPage)
	if err != nil {
		return ExecutorReport{}, err
	}
	events, err := p.latest(ctx, records.EventFilter{Executor: id})
	if err != nil {
		return ExecutorReport{}, err
	}
	return ExecutorReport{
		Executor: ViewExecutor(x), Records: views(held, viewRecord), More: len(held) == defaultPage,
		Events: views(events, viewEvent), Explanation: explainExecutor(x, len(held)),
	}, nil
}

// Bounds of the events in a report.
const (
	reportedEvents = 50
	eventPages     = 20 // that are read to find the last ones
)

// latest are the last events of a selection.
func (p Reporter) latest(ctx context.Context, f records.EventFilter) ([]records.Event, error) {
	f.Limit = 1000
	var last []records.Event
	for range eventPages {
		page, err := p.Store.Events(ctx, f)
		if err != nil {
			return nil, err
		}
		last = append(last, page.Events...)
		last = last[max(len(last)-reportedEvents, 0):]
		if f.After = page.Next; !page.More {
			break
		}
	}
	return last, nil
}
