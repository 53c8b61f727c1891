package recordstest

import (
	"context"
	"sync"
	"time"

	"github.com/probate-dev/probate/records"
)

// Call names a method of a store.
type Call string

// The methods that can be made to fail.
const (
	Register        Call = "Register"
	Heartbeat       Call = "Heartbeat"
	Drain           Call = "Drain"
	Retire          Call = "Retire"
	Attest          Call = "Attest"
	LoadExecutor    Call = "LoadExecutor"
	ListExecutors   Call = "ListExecutors"
	Fence           Call = "Fence"
	FenceByOperator Call = "FenceByOperator"
	PurgeExecutors  Call = "PurgeExecutors"
	Reserve         Call = "Reserve"
	Load            Call = "Load"
	TakeOver        Call = "TakeOver"
	ClaimUnknown    Call = "ClaimUnknown"
	Finalize        Call = "Finalize"
	Release         Call = "Release"
	MarkUnknown     Call = "MarkUnknown"
	InProgress      Call = "InProgress"
	Orphans         Call = "Orphans"
	List            Call = "List"
	Purge           Call = "Purge"
	ReadFleet       Call = "Fleet"
	Rekey           Call = "Rekey"
	Note            Call = "Note"
	Events          Call = "Events"
	PurgeEvents     Call = "PurgeEvents"

	ReleaseByOperator Call = "ReleaseByOperator"
	ResolveByOperator Call = "ResolveByOperator"
	Erase             Call = "Erase"
)

// Fault is what goes wrong with a call.
type Fault struct {
	// Performed: the call takes effect, and only then fails. Its results are
	// lost. False: it is not performed at all.
	Performed bool
	// Err is what the caller gets. Nil: records.ErrUnavailable.
	Err error
	// Pause delays the call, performed or not, until the channel is closed or
	// the call's context ends.
	Pause <-chan struct{}
}

// LostReply is the fault of a connection that breaks after the commit.
var LostReply = Fault{Performed: true}

// Down is the fault of a store that cannot be reached.
var Down = Fault{}

// Faulty is a store on whose way things go wrong when told to. Calls that were
// not named pass through. It is safe for concurrent use.
type Faulty struct {
	records.Store

	mu     sync.Mutex
	once   map[Call][]Fault
	always map[Call]*Fault
	calls  map[Call]int
}

// NewFaulty wraps a store.
func NewFaulty(s records.Store) *Faulty {
	return &Faulty{Store: s, once: make(map[Call][]Fault), always: make(map[Call]*Fault), calls: make(map[Call]int)}
}

// Once makes the next call fail. Further faults queue behind it.
func (s *Faulty) Once(c Call, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once[c] = append(s.once[c], f)
}

// Always makes every call fail, once the faults from Once are used up, until
// the returned function is called or another Always takes its place.
func (s *Faulty) Always(c Call, f Fault) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always[c] = &f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.always[c] == &f {
			delete(s.always, c)
		}
	}
}

// Calls counts the calls of a method so far, failed ones included.
func (s *Faulty) Calls(c Call) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[c]
}

// next counts the call and takes the fault that awaits it, if there is one.
func (s *Faulty) next(c Call) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[c]++
	if queue := s.once[c]; len(queue) > 0 {
		s.once[c] = queue[1:]
		return &queue[0]
	}
	return s.always[c]
}

// through performs a call as its fault allows.
func through[T any](ctx context.Context, s *Faulty, c Call, perform func() (T, error)) (T, error) {
	var none T
	f := s.next(c)
	if f == nil {
		return perform()
	}
	if f.Pause != nil {
		select {
		case <-f.Pause:
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
	if f.Performed {
		if _, err := perform(); err != nil {
			return none, err // it had no effect to lose the news of
		}
	}
	if f.Err != nil {
		return none, f.Err
	}
	return none, records.ErrUnavailable
}

// throughErr is through for calls that return no more than an error.
func throughErr(ctx context.Context, s *Faulty, c Call, perform func() error) error {
	_, err := through(ctx, s, c, func() (struct{}, error) { return struct{}{}, perform() })
	return err
}

// Register may fail as told.
func (s *Faulty) Register(ctx context.Context, r records.Registration) (records.Executor, error) {
	return through(ctx, s, Register, func() (records.Executor, error) { return s.Store.Register(ctx, r) })
}

// Heartbeat may fail as told.
func (s *Faulty) Heartbeat(ctx context.Context, id records.ExecutorID) (records.Executor, error) {
	return through(ctx, s, Heartbeat, func() (records.Executor, error) { return s.Store.Heartbeat(ctx, id) })
}

// Drain may fail as told.
func (s *Faulty) Drain(ctx context.Context, id records.ExecutorID) error {
	return throughErr(ctx, s, Drain, func() error { return s.Store.Drain(ctx, id) })
}

// Retire may fail as told.
func (s *Faulty) Retire(ctx context.Context, id records.ExecutorID) error {
	return throughErr(ctx, s, Retire, func() error { return s.Store.Retire(ctx, id) })
}

// Attest may fail as told.
func (s *Faulty) Attest(ctx context.Context, id records.ExecutorID, proven bool) error {
	return throughErr(ctx, s, Attest, func() error { return s.Store.Attest(ctx, id, proven) })
}

// LoadExecutor may fail as told.
func (s *Faulty) LoadExecutor(ctx context.Context, id records.ExecutorID) (records.Executor, error) {
	return through(ctx, s, LoadExecutor, func() (records.Executor, error) { return s.Store.LoadExecutor(ctx, id) })
}

// ListExecutors may fail as told.
func (s *Faulty) ListExecutors(ctx context.Context, states ...records.ExecutorState) ([]records.Executor, error) {
	return through(ctx, s, ListExecutors, func() ([]records.Executor, error) { return s.Store.ListExecutors(ctx, states...) })
}

// Fence may fail as told.
func (s *Faulty) Fence(ctx context.Context, c records.Suspicion) (records.Executor, error) {
	return through(ctx, s, Fence, func() (records.Executor, error) { return s.Store.Fence(ctx, c) })
}

// FenceByOperator may fail as told.
func (s *Faulty) FenceByOperator(ctx context.Context, c records.Condemnation) (records.Executor, error) {
	return through(ctx, s, FenceByOperator, func() (records.Executor, error) {
		return s.Store.FenceByOperator(ctx, c)
	})
}

// PurgeExecutors may fail as told.
func (s *Faulty) PurgeExecutors(ctx context.Context, age time.Duration) (int, error) {
	return through(ctx, s, PurgeExecutors, func() (int, error) { return s.Store.PurgeExecutors(ctx, age) })
}

// Reserve may fail as told.
func (s *Faulty) Reserve(ctx context.Context, r records.Reservation) (records.Reserved, error) {
	return through(ctx, s, Reserve, func() (records.Reserved, error) { return s.Store.Reserve(ctx, r) })
}

// Load may fail as told.
func (s *Faulty) Load(ctx context.Context, id records.ID) (records.Held, error) {
	return through(ctx, s, Load, func() (records.Held, error) { return s.Store.Load(ctx, id) })
}

// TakeOver may fail as told.
func (s *Faulty) TakeOver(ctx context.Context, t records.TakeOver) (records.Record, error) {
	return through(ctx, s, TakeOver, func() (records.Record, error) { return s.Store.TakeOver(ctx, t) })
}

// ClaimUnknown may fail as told.
func (s *Faulty) ClaimUnknown(ctx context.Context, c records.UnknownClaim) (records.Record, error) {
	return through(ctx, s, ClaimUnknown, func() (records.Record, error) { return s.Store.ClaimUnknown(ctx, c) })
}

// Finalize may fail as told.
func (s *Faulty) Finalize(ctx context.Context, id records.ID, f records.Fence, o records.Outcome) error {
	return throughErr(ctx, s, Finalize, func() error { return s.Store.Finalize(ctx, id, f, o) })
}

// Release may fail as told.
func (s *Faulty) Release(ctx context.Context, id records.ID, f records.Fence) error {
	return throughErr(ctx, s, Release, func() error { return s.Store.Release(ctx, id, f) })
}

// MarkUnknown may fail as told.
func (s *Faulty) MarkUnknown(ctx context.Context, id records.ID, f records.Fence, retention time.Duration) error {
	return throughErr(ctx, s, MarkUnknown, func() error { return s.Store.MarkUnknown(ctx, id, f, retention) })
}

// InProgress may fail as told.
func (s *Faulty) InProgress(ctx context.Context, id records.ExecutorID, after records.ID, limit int) ([]records.Record, error) {
	return through(ctx, s, InProgress, func() ([]records.Record, error) { return s.Store.InProgress(ctx, id, after, limit) })
}

// Orphans may fail as told.
func (s *Faulty) Orphans(ctx context.Context, after records.ID, limit int) ([]records.Record, error) {
	return through(ctx, s, Orphans, func() ([]records.Record, error) { return s.Store.Orphans(ctx, after, limit) })
}

// List may fail as told.
func (s *Faulty) List(ctx context.Context, f records.Filter) (records.Page, error) {
	return through(ctx, s, List, func() (records.Page, error) { return s.Store.List(ctx, f) })
}

// Purge may fail as told.
func (s *Faulty) Purge(ctx context.Context, limit int) (int, error) {
	return through(ctx, s, Purge, func() (int, error) { return s.Store.Purge(ctx, limit) })
}

// Fleet may fail as told.
func (s *Faulty) Fleet(ctx context.Context) (records.Fleet, error) {
	return through(ctx, s, ReadFleet, func() (records.Fleet, error) { return s.Store.Fleet(ctx) })
}

// Rekey may fail as told.
func (s *Faulty) Rekey(ctx context.Context, from, to, operator string) error {
	return throughErr(ctx, s, Rekey, func() error { return s.Store.Rekey(ctx, from, to, operator) })
}

// Note may fail as told.
func (s *Faulty) Note(ctx context.Context, o []records.Occurrence) error {
	return throughErr(ctx, s, Note, func() error { return s.Store.Note(ctx, o) })
}

// Events may fail as told.
func (s *Faulty) Events(ctx context.Context, f records.EventFilter) (records.EventPage, error) {
	return through(ctx, s, Events, func() (records.EventPage, error) { return s.Store.Events(ctx, f) })
}

// PurgeEvents may fail as told.
func (s *Faulty) PurgeEvents(ctx context.Context, age time.Duration, limit int) (int, error) {
	return through(ctx, s, PurgeEvents, func() (int, error) { return s.Store.PurgeEvents(ctx, age, limit) })
}

// ReleaseByOperator may fail as told.
func (s *Faulty) ReleaseByOperator(ctx context.Context, i records.Intervention) (records.Record, error) {
	return through(ctx, s, ReleaseByOperator, func() (records.Record, error) { return s.Store.ReleaseByOperator(ctx, i) })
}

// ResolveByOperator may fail as told.
func (s *Faulty) ResolveByOperator(ctx context.Context, i records.Intervention, o records.Outcome) (records.Record, error) {
	return through(ctx, s, ResolveByOperator, func() (records.Record, error) { return s.Store.ResolveByOperator(ctx, i, o) })
}

// Erase may fail as told.
func (s *Faulty) Erase(ctx context.Context, e records.Erasure) (records.Erased, error) {
	return through(ctx, s, Erase, func() (records.Erased, error) { return s.Store.Erase(ctx, e) })
}
