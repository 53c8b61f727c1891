package api

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/records"
)

// AdminFlows is what operators see and change of data flows.
type AdminFlows struct {
	Store records.Flows
	// Terminate ends a flow, wherever its bytes are moved. A flow that is still
	// running when it returns is wanted to end, and nobody has confirmed yet
	// that its bytes have stopped. ErrFenced: it has ended otherwise. Nil: what
	// is wanted is written to the store, where who moves the bytes finds it.
	// records.ErrSealed: what its message says cannot be read here.
	Terminate func(ctx context.Context, flow, reason string) error
	// Ended is what the control plane is told of a flow that is ended without
	// Terminate and that nobody moves. Nil: nothing.
	Ended func(f records.Flow, reason string) *records.NewCallback
}

// FlowView is a data flow as operators see it. What lets somebody in at its
// ends is not in it.
type FlowView struct {
	Flow        string     `json:"flow"`
	Record      string     `json:"record"`
	State       string     `json:"state"`
	Wanted      string     `json:"wanted,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	Profile     string     `json:"profile"`
	Dataset     string     `json:"dataset"`
	Attempts    int        `json:"attempts"`
	Executor    string     `json:"executor,omitempty"`
	ExecutorURL string     `json:"executor_url,omitempty"`
	Epoch       int64      `json:"epoch,omitempty"`
	Bytes       int64      `json:"bytes"`
	TotalBytes  int64      `json:"total_bytes,omitempty"`
	SHA256      string     `json:"sha256,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	Undelivered string     `json:"undelivered,omitempty"` // the oldest callback that waits, and why
}

func viewFlow(f records.Flow) FlowView {
	v := FlowView{
		Flow: f.ID, Record: f.Record.String(), State: string(f.State), Wanted: string(f.Wanted), Reason: f.Reason,
		Profile: f.Profile, Dataset: f.Dataset, Attempts: f.Attempts, Epoch: f.Epoch,
		Bytes: f.Progress.Bytes, TotalBytes: f.Progress.Total, SHA256: hex.EncodeToString(f.Progress.SHA256),
		CreatedAt: f.CreatedAt.UTC(), UpdatedAt: f.UpdatedAt.UTC(), EndedAt: instant(f.EndedAt),
	}
	if f.Executor != (records.ExecutorID{}) {
		v.Executor = f.Executor.String()
	}
	return v
}

// viewHeldFlow knows besides who has it now, and which callback waits.
func viewHeldFlow(h records.HeldFlow) FlowView {
	v := viewFlow(h.Flow)
	if h.InProgress() {
		v.Executor, v.ExecutorURL, v.Epoch = h.Fence.Executor.String(), h.URL, h.Fence.Epoch
	}
	if c := h.Callback; c != nil {
		v.Undelivered = fmt.Sprintf("%s, %d tries: %s", c.Event, c.Tries, c.Reason)
	}
	return v
}

// FlowList is a page of data flows.
type FlowList struct {
	Flows []FlowView `json:"flows"`
	More  bool       `json:"more"`
	Next  string     `json:"next,omitempty"`
}

// ListFlows lists flows in order of their ids.
func ListFlows(ctx context.Context, s records.Flows, f records.FlowFilter) (FlowList, error) {
	page, err := s.ListFlows(ctx, f)
	return FlowList{Flows: views(page.Flows, viewFlow), More: page.More, Next: page.Next}, err
}

// ShowFlow tells of one. ErrNotFound.
func ShowFlow(ctx context.Context, s records.Flows, id string) (FlowView, error) {
	h, err := s.LoadFlow(ctx, id)
	return viewHeldFlow(h), err
}

// mountFlows adds the paths about flows, if there are any.
func (a *Admin) mountFlows(r chi.Router) {
	if a.config.Flows == nil {
		return
	}
	r.Get("/v1/flows", a.reading(a.listFlows))
	r.Get("/v1/flows/{id}", a.reading(a.showFlow))
	r.Post("/v1/flows/{id}/terminate", a.changing(a.terminateFlow))
}

func (a *Admin) listFlows(r *http.Request) (any, error) {
	f := records.FlowFilter{Limit: defaultPage}
	err := readQuery(r, map[string]func(word string) error{
		"state": func(word string) error {
			if f.State = records.FlowState(word); !f.State.Valid() {
				return errors.New("want PREPARING, PREPARED, STARTING, STARTED, SUSPENDED, COMPLETED or TERMINATED")
			}
			return nil
		},
		"after": func(word string) error { f.After = word; return nil },
		"limit": func(word string) (err error) { f.Limit, err = readLimit(word); return err },
	})
	if err != nil {
		return nil, err
	}
	return ListFlows(r.Context(), a.config.Flows.Store, f)
}

// flowID reads the id in the path, which may hold anything.
func flowID(r *http.Request) string {
	id := chi.URLParam(r, "id")
	if r.URL.RawPath == "" {
		return id
	}
	if plain, err := url.PathUnescape(id); err == nil {
		return plain
	}
	return id
}

func (a *Admin) showFlow(r *http.Request) (any, error) {
	if err := readQuery(r, nil); err != nil {
		return nil, err
	}
	return ShowFlow(r.Context(), a.config.Flows.Store, flowID(r))
}

func (a *Admin) terminateFlow(r *http.Request, who operator) (any, error) {
	var b because
	if err := readOrder(r, &b); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	done, err := TerminateFlow(ctx, *a.config.Flows, a.config.Store, flowID(r), who.name, b.Reason)
	if done.Changed {
		a.change(r, who, "terminate", "record", done.Record, "before", done.Before, "after", done.After(), "reason", b.Reason)
	}
	return done.Now, err
}

// TerminatedFlow is what came of the order to end a flow.
type TerminatedFlow struct {
	Record  records.ID
	Before  records.FlowState
	Now     FlowView
	Changed bool // false: it was a repeat, or nothing was done
}

// After is the flow's state, and what is wanted of it if that has not come yet.
func (t TerminatedFlow) After() string {
	if t.Now.Wanted != "" {
		return t.Now.State + ", wanted " + t.Now.Wanted
	}
	return t.Now.State
}

// TerminateFlow ends a flow at an operator's wish, and notes that. If ctx ends
// before it is confirmed that the bytes have stopped, that it is to end is
// written down, and the flow is returned as it stands. Who repeats the order
// after a lost reply is told the same and changes nothing. ErrFenced: it has
// ended otherwise; ErrNotFound.
func TerminateFlow(ctx context.Context, flows AdminFlows, audit records.Audit, id, actor, reason string) (TerminatedFlow, error) {
	if err := records.ValidateGrounds(reason); err != nil {
		return TerminatedFlow{}, err
	}
	before, err := flows.Store.LoadFlow(ctx, id)
	done := TerminatedFlow{Record: before.Flow.Record, Before: before.Flow.State, Now: viewHeldFlow(before)}
	switch {
	case err != nil:
		return done, err
	case before.Flow.State == records.FlowTerminated && before.Flow.Reason == records.FlowReason(reason):
		return done, nil
	case before.Flow.State.Terminal():
		return done, fmt.Errorf("terminate: it is %s, which is final: %w", before.Flow.State, records.ErrFenced)
	case flows.Terminate != nil:
		err = flows.Terminate(ctx, id, reason)
		if errors.Is(err, records.ErrSealed) { // its key may be lost, and then nobody could end it otherwise
			err = terminateStored(ctx, flows, id, reason, true)
		}
	default:
		err = terminateStored(ctx, flows, id, reason, false)
	}
	if err != nil {
		return done, err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	now, err := flows.Store.LoadFlow(last, id)
	if err != nil {
		return done, err
	}
	done.Now, done.Changed = viewHeldFlow(now), true
	return done, audit.Note(last, []records.Occurrence{{
		Kind: records.EventTerminated, Record: done.Record, Epoch: now.Flow.Epoch, Executor: now.Flow.Executor,
		Actor: actor, Reason: reason, Before: string(done.Before), After: done.After(),
	}})
}

// flowLook is how often a flow is looked at whose end is waited for.
const flowLook = 100 * time.Millisecond

// terminateStored ends a flow that is not running, or writes down that who runs
// it, or will, is to end it, and waits for that until ctx ends. One that is
// unreadable will perhaps be run by nobody, so it is ended once nobody has it.
func terminateStored(ctx context.Context, flows AdminFlows, id, reason string, unreadable bool) error {
	attempt := records.NewToken()
	look := time.NewTicker(flowLook)
	defer look.Stop()
	for wanted := false; ; {
		h, err := flows.Store.LoadFlow(ctx, id)
		switch {
		case ctx.Err() != nil && wanted:
			return nil
		case err != nil:
			return err
		case h.Flow.State == records.FlowTerminated && (h.Flow.Reason == records.FlowReason(reason) || h.Flow.Attempt == attempt):
			return nil
		case h.Flow.State.Terminal():
			return fmt.Errorf("terminate: it is %s, which is final: %w", h.Flow.State, records.ErrFenced)
		case h.Flow.Moves && h.Flow.State.Running() && (h.InProgress() || !unreadable):
			_, err = flows.Store.WantFlow(ctx, id, records.FlowWish{State: records.FlowTerminated, By: records.FlowOperator, Reason: reason})
			wanted = wanted || err == nil
		default:
			m := records.FlowMove{
				ID: id, Attempt: attempt, Version: h.Flow.Version, To: records.FlowTerminated, Reason: reason, Tokens: []byte{},
			}
			if flows.Ended != nil {
				m.Callback = flows.Ended(h.Flow, reason)
			}
			_, err = flows.Store.MoveFlow(ctx, m)
		}
		if err != nil && !errors.Is(err, records.ErrFenced) && ctx.Err() == nil {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			if wanted {
				return nil
			}
			return context.Cause(ctx)
		}
	}
}
