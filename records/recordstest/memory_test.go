package recordstest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
)

// database is the model behind a lock, with a real clock: what memory stores
// share. It lets the suite be tested against stores that are wrong on purpose.
type database struct {
	mu      sync.Mutex
	model   *model
	cluster string
}

// memory is one node's store over a database.
type memory struct {
	db     *database
	mu     sync.Mutex
	closed bool
}

// freshMemory makes a database and opens memory stores over it, each handed
// through wrap.
func freshMemory(wrap func(*memory) records.Store) Fresh {
	return func(testing.TB) func(testing.TB) records.Store {
		db := &database{model: newModel(), cluster: "test"}
		return func(t testing.TB) records.Store {
			s := &memory{db: db}
			t.Cleanup(func() { _ = s.Close() })
			return wrap(s)
		}
	}
}

// asked runs one decision on the model at the present instant.
func asked[T any](ctx context.Context, s *memory, decide func(m *model, now time.Time) (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return none, records.ErrUnavailable
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	got, err := decide(s.db.model, time.Now().Round(time.Microsecond))
	if err != nil {
		return none, err
	}
	return got, nil
}

func (s *memory) tell(ctx context.Context, decide func(m *model, now time.Time) error) error {
	_, err := asked(ctx, s, func(m *model, now time.Time) (struct{}, error) { return struct{}{}, decide(m, now) })
	return err
}

// shown is an executor's row as it is read.
func shown(now time.Time, e records.Executor) records.Executor {
	e.HeartbeatAge = now.Sub(e.HeartbeatAt)
	if !e.AttestedAt.IsZero() {
		e.AttestedAge = now.Sub(e.AttestedAt)
	}
	return e
}

func (s *memory) Register(ctx context.Context, r records.Registration) (records.Executor, error) {
	return asked(ctx, s, func(m *model, now time.Time) (records.Executor, error) {
		e, err := m.register(now, r)
		return shown(now, e), err
	})
}

func (s *memory) Heartbeat(ctx context.Context, id records.ExecutorID) (records.Executor, error) {
	return asked(ctx, s, func(m *model, now time.Time) (records.Executor, error) {
		e, err := m.heartbeat(now, id)
		return shown(now, e), err
	})
}

func (s *memory) Drain(ctx context.Context, id records.ExecutorID) error {
	return s.tell(ctx, func(m *model, _ time.Time) error { return m.leave(id, records.Draining) })
}

func (s *memory) Retire(ctx context.Context, id records.ExecutorID) error {
	return s.tell(ctx, func(m *model, _ time.Time) error { return m.leave(id, records.Gone) })
}

func (s *memory) Attest(ctx context.Context, id records.ExecutorID, proven bool) error {
	return s.tell(ctx, func(m *model, now time.Time) error {
		if !m.live(id) {
			return records.ErrNotActive
		}
		m.executors[id].AttestedAt = time.Time{}
		if proven {
			m.executors[id].AttestedAt = now
		}
		return nil
	})
}

func (s *memory) LoadExecutor(ctx context.Context, id records.ExecutorID) (records.Executor, error) {
	return asked(ctx, s, func(m *model, now time.Time) (records.Executor, error) {
		e, ok := m.executors[id]
		if !ok {
			return records.Executor{}, records.ErrNotFound
		}
		return shown(now, *e), nil
	})
}

func (s *memory) ListExecutors(ctx context.Context, states ...records.ExecutorState) ([]records.Executor, error) {
	return asked(ctx, s, func(m *model, now time.Time) ([]records.Executor, error) {
		var list []records.Executor
		for _, e := range m.executors {
			if len(states) == 0 || slices.Contains(states, e.State) {
				list = append(list, shown(now, *e))
			}
		}
		slices.SortFunc(list, func(a, b records.Executor) int {
			return cmp.Or(strings.Compare(a.Slot, b.Slot), a.HeartbeatAt.Compare(b.HeartbeatAt))
		})
		return list, nil
	})
}

func (s *memory) Fence(ctx context.Context, sus records.Suspicion) (records.Executor, error) {
	return asked(ctx, s, func(m *model, now time.Time) (records.Executor, error) {
		e, err := m.fence(now, sus)
		return shown(now, e), err
	})
}

func (s *memory) FenceByOperator(ctx context.Context, c records.Condemnation) (records.Executor, error) {
	return asked(ctx, s, func(m *model, now time.Time) (records.Executor, error) {
		if err := c.Validate(); err != nil {
			return records.Executor{}, err
		}
		e, ok := m.executors[c.Executor]
		switch {
		case !ok:
			return records.Executor{}, records.ErrNotFound
		case e.State.Terminal():
		case !c.Force && !expired(now, e):
			return records.Executor{}, records.ErrLeaseHeld
		default:
			m.note(records.Event{
				At: now, Kind: records.EventFenced, Executor: c.Executor, Actor: c.Actor, Reason: c.Reason,
				Before: string(e.State), After: string(records.Fenced),
			})
			m.markFenced(now, e, records.ExecutorID{}, c.RowReason())
		}
		return shown(now, *e), nil
	})
}

func (s *memory) PurgeExecutors(ctx context.Context, age time.Duration) (int, error) {
	return asked(ctx, s, func(m *model, now time.Time) (int, error) { return m.purgeExecutors(now, age), nil })
}

// withExecutor joins a record with its executor.
func withExecutor(m *model, now time.Time, r records.Record) records.Held {
	h := records.Held{Record: r}
	if e, ok := m.executors[r.Executor]; ok {
		h.Executor = shown(now, *e)
	}
	return h
}

func (s *memory) Reserve(ctx context.Context, r records.Reservation) (records.Reserved, error) {
	return asked(ctx, s, func(m *model, now time.Time) (records.Reserved, error) {
		r.Request = bytes.Clone(r.Request)
		owned, rec, err := m.reserve(now, r)
		return records.Reserved{Owned: owned, Held: withExecutor(m, now, rec)}, err
	})
}

func (s *memory) Load(ctx context.Context, id records.ID) (records.Held, error) {
	return asked(ctx, s, func(m *model, now time.Time) (records.Held, error) {
		r, ok := m.records[id]
		if !ok {
			return records.Held{}, records.ErrNotFound
		}
		return withExecutor(m, now, *r), nil
	})
}

func (s *memory) TakeOver(ctx context.Context, t records.TakeOver) (records.Record, error) {
	return asked(ctx, s, func(m *model, _ time.Time) (records.Record, error) {
		return m.takeOver(t)
	})
}

func (s *memory) ClaimUnknown(ctx context.Context, c records.UnknownClaim) (records.Record, error) {
	return asked(ctx, s, func(m *model, _ time.Time) (records.Record, error) {
		return m.claimUnknown(c)
	})
}

func (s *memory) Finalize(ctx context.Context, id records.ID, f records.Fence, o records.Outcome) error {
	return s.tell(ctx, func(m *model, now time.Time) error {
		if err := o.Validate(); err != nil {
			return err
		}
		return m.end(now, id, f, records.Finalized, &o.Response, o.Retention)
	})
}

func (s *memory) Release(ctx context.Context, id records.ID, f records.Fence) error {
	return s.tell(ctx, func(m *model, now time.Time) error { return m.end(now, id, f, records.Released, nil, 0) })
}

func (s *memory) MarkUnknown(ctx context.Context, id records.ID, f records.Fence, retention time.Duration) error {
	return s.tell(ctx, func(m *model, now time.Time) error {
		if err := records.ValidateRetention(retention); err != nil {
			return err
		}
		return m.end(now, id, f, records.Unknown, nil, retention)
	})
}

// pick reads the records that match, in order of id, after one, at most limit.
func (s *memory) pick(ctx context.Context, after records.ID, limit int, match func(*model, time.Time, *records.Record) bool) ([]records.Record, error) {
	return asked(ctx, s, func(m *model, now time.Time) ([]records.Record, error) {
		var list []records.Record
		for _, r := range m.records {
			if r.ID.Compare(after) > 0 && match(m, now, r) {
				list = append(list, *r)
			}
		}
		slices.SortFunc(list, func(a, b records.Record) int { return a.ID.Compare(b.ID) })
		return list[:min(limit, len(list))], nil
	})
}

func (s *memory) InProgress(ctx context.Context, id records.ExecutorID, after records.ID, limit int) ([]records.Record, error) {
	return s.pick(ctx, after, limit, func(_ *model, _ time.Time, r *records.Record) bool {
		return r.State == records.InProgress && r.Executor == id
	})
}

func (s *memory) Orphans(ctx context.Context, after records.ID, limit int) ([]records.Record, error) {
	return s.pick(ctx, after, limit, func(m *model, _ time.Time, r *records.Record) bool {
		return r.State == records.InProgress && m.is(r.Executor, records.Fenced, records.Gone)
	})
}

func (s *memory) List(ctx context.Context, f records.Filter) (records.Page, error) {
	if err := f.Validate(); err != nil {
		return records.Page{}, err
	}
	list, err := s.pick(ctx, f.After, f.Limit+1, func(_ *model, now time.Time, r *records.Record) bool {
		return (f.Realm == nil || *f.Realm == r.Realm) && (f.Key == nil || *f.Key == r.Key) &&
			(f.Operation == nil || *f.Operation == r.Operation) && (f.State == "" || f.State == r.State) &&
			(f.Executor == records.ExecutorID{} || f.Executor == r.Executor) &&
			!r.CreatedAt.After(now.Add(-f.OlderThan))
	})
	if err != nil {
		return records.Page{}, err
	}
	page := records.Page{Records: list, More: len(list) > f.Limit}
	page.Records = list[:min(f.Limit, len(list))]
	for i := range page.Records {
		r := &page.Records[i]
		r.Request = nil
		if r.Response != nil {
			r.Response = &records.Response{Status: r.Response.Status, Headers: r.Response.Headers}
		}
		page.Next = r.ID
	}
	return page, nil
}

func (s *memory) Purge(ctx context.Context, limit int) (int, error) {
	return asked(ctx, s, func(m *model, now time.Time) (int, error) { return m.purge(now, limit), nil })
}

func (s *memory) Fleet(ctx context.Context) (records.Fleet, error) {
	return asked(ctx, s, func(*model, time.Time) (records.Fleet, error) {
		return records.Fleet{Cluster: s.db.cluster, Schema: 1, MinBinary: 1}, nil
	})
}

func (s *memory) Rekey(ctx context.Context, from, to, operator string) error {
	if err := errors.Join(records.ValidateCluster(to), records.ValidateReason(operator)); err != nil {
		return err
	}
	return s.tell(ctx, func(m *model, now time.Time) error {
		if s.db.cluster != from {
			return records.ErrWrongCluster
		}
		s.db.cluster = to
		m.note(records.Event{At: now, Kind: records.EventRekeyed, Actor: operator, Before: from, After: to})
		return nil
	})
}

func (s *memory) Note(ctx context.Context, all []records.Occurrence) error {
	if err := records.ValidateOccurrences(all); err != nil {
		return err
	}
	return s.tell(ctx, func(m *model, now time.Time) error {
		for _, o := range all {
			e := o.Event()
			e.At = now.Add(-o.Ago)
			m.note(e)
		}
		return nil
	})
}

func (s *memory) Events(ctx context.Context, f records.EventFilter) (records.EventPage, error) {
	if err := f.Validate(); err != nil {
		return records.EventPage{}, err
	}
	return asked(ctx, s, func(m *model, _ time.Time) (records.EventPage, error) { return m.events(f) })
}

func (s *memory) PurgeEvents(ctx context.Context, age time.Duration, limit int) (int, error) {
	return asked(ctx, s, func(m *model, now time.Time) (int, error) { return m.purgeEvents(now, age, limit), nil })
}

func (s *memory) ReleaseByOperator(ctx context.Context, i records.Intervention) (records.Record, error) {
	return asked(ctx, s, func(m *model, now time.Time) (records.Record, error) { return m.intervene(now, i, nil) })
}

func (s *memory) ResolveByOperator(ctx context.Context, i records.Intervention, o records.Outcome) (records.Record, error) {
	return asked(ctx, s, func(m *model, now time.Time) (records.Record, error) { return m.intervene(now, i, &o) })
}

func (s *memory) Erase(ctx context.Context, e records.Erasure) (records.Erased, error) {
	return asked(ctx, s, func(m *model, now time.Time) (records.Erased, error) { return m.erase(now, e) })
}

func (s *memory) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
