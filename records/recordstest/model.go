package recordstest

import (
	"slices"
	"time"

	"github.com/probate-dev/probate/records"
)

// model is the contract of the decisions, as plainly as it can be said: maps,
// no durability, no concurrency, and a clock that the caller holds. The random
// walk compares stores with it.
type model struct {
	executors map[records.ExecutorID]*records.Executor
	records   map[records.ID]*records.Record
	audit     []noted
	written   int                          // events so far, purged ones included
	erasures  int64                        // times that something was erased
	marks     map[records.ID]records.Token // of the last intervention
}

// noted is an event and its number.
type noted struct {
	n     int
	event records.Event
}

func newModel() *model {
	return &model{
		executors: make(map[records.ExecutorID]*records.Executor),
		records:   make(map[records.ID]*records.Record),
		marks:     make(map[records.ID]records.Token),
	}
}

func (m *model) is(id records.ExecutorID, states ...records.ExecutorState) bool {
	e, ok := m.executors[id]
	return ok && slices.Contains(states, e.State)
}

func (m *model) live(id records.ExecutorID) bool {
	return m.is(id, records.Active, records.Draining)
}

func (m *model) register(now time.Time, r records.Registration) (records.Executor, error) {
	if err := r.Validate(); err != nil {
		return records.Executor{}, err
	}
	if e, ok := m.executors[r.ID]; ok {
		return *e, nil
	}
	for _, holder := range m.executors {
		if holder.Slot != r.Slot || !m.live(holder.ID) {
			continue
		}
		seen := records.Sighting{Executor: holder.ID, Beat: holder.Beat}
		if seen != r.Replaces || holder.Policy == records.PolicyLease && !expired(now, holder) {
			shown := *holder
			shown.HeartbeatAge = now.Sub(holder.HeartbeatAt)
			return records.Executor{}, &records.SlotTakenError{Holder: shown}
		}
		m.markFenced(now, holder, r.ID, "replaced by a new boot of its slot")
	}
	e := &records.Executor{
		ID: r.ID, Slot: r.Slot, URL: r.URL, PublicKey: r.PublicKey, Policy: r.Policy, LeaseTTL: r.LeaseTTL,
		State: records.Active, HeartbeatAt: now, LeaseSince: now,
	}
	m.executors[r.ID] = e
	return *e, nil
}

func (m *model) markFenced(now time.Time, e *records.Executor, by records.ExecutorID, reason string) {
	e.State, e.FencedAt, e.FencedBy, e.FencedReason = records.Fenced, now, by, reason
}

func expired(now time.Time, e *records.Executor) bool { return now.Sub(e.HeartbeatAt) > e.LeaseTTL }

func (m *model) heartbeat(now time.Time, id records.ExecutorID) (records.Executor, error) {
	if !m.live(id) {
		return records.Executor{}, records.ErrNotActive
	}
	e := m.executors[id]
	if now.Sub(e.HeartbeatAt) > e.LeaseTTL/2 {
		e.LeaseSince = now
	}
	e.Beat++
	e.HeartbeatAt = now
	beaten := *e
	beaten.Erasures = m.erasures
	return beaten, nil
}

// leave moves an executor on its way out, as its legal moves allow.
func (m *model) leave(id records.ExecutorID, to records.ExecutorState) error {
	e, ok := m.executors[id]
	if !ok || e.State != to && !e.State.CanBecome(to) {
		return records.ErrNotActive
	}
	e.State = to
	return nil
}

func (m *model) fence(now time.Time, s records.Suspicion) (records.Executor, error) {
	if err := records.ValidateReason(s.Reason); err != nil {
		return records.Executor{}, err
	}
	d, ok := m.executors[s.Suspect]
	if !ok {
		return records.Executor{}, records.ErrNotFound
	}
	if d.State.Terminal() {
		return *d, nil
	}
	byProbe := s.Probed && d.Policy == records.PolicyProbe
	byMonotonic := s.BeatUnchanged && d.HeartbeatAt.After(now)
	switch {
	case d.Beat != s.Beat:
		return records.Executor{}, records.ErrRefuted
	case !byProbe && !byMonotonic && !expired(now, d):
		return records.Executor{}, records.ErrLeaseHeld
	case !m.fit(now, s):
		return records.Executor{}, records.ErrObserverUnfit
	case m.fencedWithin(d.LeaseTTL, now) >= max(1, m.alive()/2):
		return records.Executor{}, records.ErrBraked
	}
	m.markFenced(now, d, s.Observer, s.Reason)
	return *d, nil
}

// fit reports whether the observer's own link to the store is beyond doubt.
func (m *model) fit(now time.Time, s records.Suspicion) bool {
	o, ok := m.executors[s.Observer]
	return ok && s.Observer != s.Suspect && o.State == records.Active &&
		now.Sub(o.HeartbeatAt) < o.LeaseTTL/2 &&
		(s.Probed || now.Sub(o.LeaseSince) > o.LeaseTTL) &&
		o.Beat >= s.ObserverBeat+s.ObserverBeats
}

func (m *model) alive() (n int) {
	for id := range m.executors {
		if m.live(id) {
			n++
		}
	}
	return n
}

// fencedWithin counts the fences less than d from now. Some may lie in the
// future, if the clock stepped back.
func (m *model) fencedWithin(d time.Duration, now time.Time) (n int) {
	for _, e := range m.executors {
		if e.State == records.Fenced && now.Sub(e.FencedAt).Abs() < d {
			n++
		}
	}
	return n
}

// claimable: released, or past its retention and the grace. Nothing else.
func claimable(now time.Time, r *records.Record) bool {
	return r.State == records.Released || r.State != records.InProgress && forgotten(now, r)
}

func forgotten(now time.Time, r *records.Record) bool {
	return r.State != records.InProgress && now.Sub(r.ExpiresAt) > Grace
}

// reserve grants the key or returns what stands there.
func (m *model) reserve(now time.Time, r records.Reservation) (owned bool, _ records.Record, _ error) {
	if err := r.Validate(); err != nil {
		return false, records.Record{}, err
	}
	old, exists := m.records[r.ID]
	if exists && !claimable(now, old) {
		mine := old.State == records.InProgress && old.Attempt == r.Attempt && old.Executor == r.By
		return mine, *old, nil
	}
	if !m.is(r.By, records.Active) {
		return false, records.Record{}, records.ErrNotActive
	}
	epoch := now.UnixMicro()
	if exists {
		epoch = old.Epoch + 1
	}
	rec := &records.Record{
		ID: r.ID, Realm: r.Realm, Key: r.Key, Operation: r.Operation, Resource: r.Resource,
		Fingerprint: r.Fingerprint, Request: r.Request,
		State: records.InProgress, Executor: r.By, ExecutorURL: m.executors[r.By].URL,
		Epoch: epoch, Attempt: r.Attempt, CreatedAt: now,
	}
	m.records[r.ID] = rec
	return true, *rec, nil
}

func (m *model) takeOver(t records.TakeOver) (records.Record, error) {
	if err := t.Validate(); err != nil {
		return records.Record{}, err
	}
	r, ok := m.records[t.ID]
	if ok && r.State == records.InProgress && r.Executor == t.By && r.Attempt == t.Attempt {
		return *r, nil // the reply was lost
	}
	may := t.SignedNotRunning || t.From.Executor == t.By || m.is(t.From.Executor, records.Fenced, records.Gone)
	switch {
	case !ok || r.State != records.InProgress || r.Fence() != t.From || !may:
		return records.Record{}, records.ErrFenced
	case !m.is(t.By, records.Active):
		return records.Record{}, records.ErrNotActive
	}
	m.hand(r, t.By, t.Attempt)
	r.Takeovers++
	return *r, nil
}

func (m *model) claimUnknown(c records.UnknownClaim) (records.Record, error) {
	if err := c.Validate(); err != nil {
		return records.Record{}, err
	}
	r, ok := m.records[c.ID]
	if ok && r.State == records.InProgress && r.Executor == c.By && r.Attempt == c.Attempt {
		return *r, nil
	}
	switch {
	case !ok || r.State != records.Unknown || r.Epoch != c.Epoch:
		return records.Record{}, records.ErrFenced
	case !m.is(c.By, records.Active):
		return records.Record{}, records.ErrNotActive
	}
	m.hand(r, c.By, c.Attempt)
	return *r, nil
}

// hand gives the record to an executor, at the next epoch.
func (m *model) hand(r *records.Record, by records.ExecutorID, attempt records.Token) {
	r.State, r.FinalizedAt, r.ExpiresAt = records.InProgress, time.Time{}, time.Time{}
	r.Executor, r.ExecutorURL, r.Attempt = by, m.executors[by].URL, attempt
	r.Epoch++
}

// end moves a record out of progress: finalized with a response, else unknown
// or released.
func (m *model) end(now time.Time, id records.ID, f records.Fence, to records.State, response *records.Response, retention time.Duration) error {
	r, ok := m.records[id]
	switch {
	case !ok || r.Fence() != f:
		return records.ErrFenced
	case r.State == to:
		return nil // the reply was lost
	case !r.State.CanBecome(to):
		return records.ErrFenced
	}
	r.State, r.Response = to, response
	r.FinalizedAt, r.ExpiresAt = now, now.Add(retention)
	return nil
}

func (m *model) purge(now time.Time, limit int) (n int) {
	for id, r := range m.records {
		if n < limit && forgotten(now, r) {
			delete(m.records, id)
			n++
		}
	}
	return n
}

func (m *model) purgeExecutors(now time.Time, age time.Duration) (n int) {
	for id, e := range m.executors {
		if e.State.Terminal() && now.Sub(e.HeartbeatAt) > age && !m.holds(id) {
			delete(m.executors, id)
			n++
		}
	}
	return n
}

func (m *model) holds(id records.ExecutorID) bool {
	for _, r := range m.records {
		if r.State == records.InProgress && r.Executor == id {
			return true
		}
	}
	return false
}
