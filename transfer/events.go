package transfer

import (
	"context"

	"github.com/probate-dev/probate/records"
)

// Events hears what this process does, for who counts it. Its methods return at
// once.
type Events interface {
	// Moved: so many bytes have reached a sink, or a reader.
	Moved(bytes int64)
	// Retried: so many faults that may pass have had something tried again.
	Retried(faults int)
	// Ended: this process has brought a flow to its end.
	Ended(state records.FlowState)
	// Told: a callback was sent, and came to that.
	Told(outcome Outcome)
}

// Outcome is what became of one delivery of a callback.
type Outcome string

// Outcomes of deliveries. Of these only a failed one is tried again.
const (
	Delivered Outcome = "delivered"
	Failed    Outcome = "failed"
	Refused   Outcome = "refused"  // for good
	GivenUp   Outcome = "given_up" // it has become too old
)

// Outcomes are all there are.
var Outcomes = []Outcome{Delivered, Failed, Refused, GivenUp}

// unheard is nobody who listens.
type unheard struct{}

// Moved implements [Events].
func (unheard) Moved(int64) {}

// Retried implements [Events].
func (unheard) Retried(int) {}

// Ended implements [Events].
func (unheard) Ended(records.FlowState) {}

// Told implements [Events].
func (unheard) Told(Outcome) {}

// heard is a store whose ends of flows are heard of.
type heard struct {
	Store
	events Events
}

// MoveFlow implements [records.Flows].
func (h heard) MoveFlow(ctx context.Context, m records.FlowMove) (records.Flow, error) {
	f, err := h.Store.MoveFlow(ctx, m)
	if err == nil && m.To.Terminal() {
		h.events.Ended(m.To)
	}
	return f, err
}

// Copies are how many flows this process moves, and how many wait for their
// place.
func (p *Plane) Copies() (moving, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	moving = len(p.places)
	return moving, max(0, len(p.runs)-moving)
}

// progress is told how far a copy has come. What is sent again after a failure
// is not counted again.
func (p *Plane) progress(r *run, from int64) func(int64) {
	furthest := from
	return func(n int64) {
		if n > furthest {
			p.config.Events.Moved(n - furthest)
			furthest = n
		}
		r.bytes.Store(n)
	}
}
