package recordstest

import (
	"errors"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/probate-dev/probate/records"
)

// maxWalks and walkBudget bound the random walk: it begins no walk beyond
// them. A walk that failed is repeated as often as shrinking it takes.
const (
	maxWalks   = 100
	walkBudget = 8 * time.Second
)

var modelRules = group{name: "Model", alone: true, rules: []rule{
	{"ARandomWalkAgreesWithTheModel", func(f *fixture) {
		walks, failed, until := 0, false, time.Now().Add(walkBudget)
		rapid.Check(f.TB, func(t *rapid.T) {
			if walks++; !failed && (walks > maxWalks || time.Now().After(until)) {
				return
			}
			defer func() { failed = failed || t.Failed() }()
			w := newWalk(f, t)
			defer w.leave()
			t.Repeat(map[string]func(*rapid.T){
				"reserve": w.reserve, "reserve again": w.reserve, "take over": w.takeOver, "take over again": w.takeOver,
				"claim unknown": w.claimUnknown, "finalize": w.finalize, "release": w.release, "mark unknown": w.markUnknown,
				"register": w.register, "heartbeat": w.heartbeat, "heartbeat again": w.heartbeat, "drain": w.drain, "retire": w.retire,
				"fence": w.fence, "fence again": w.fence, "purge": w.purge, "elapse": w.elapse,
				"release by hand": w.releaseByHand, "resolve": w.resolve, "erase": w.erase,
			})
			w.agreesOnAll(t)
		})
	}},
}}

// walk is one random walk over a store and the model, side by side. The
// model's clock stands still except when the walk lets time elapse, and leases
// are long, so the two can differ only about a record that nothing remembers
// but the grace: if the machine was slow, the store may have forgotten it.
type walk struct {
	f         *fixture
	model     *model
	now       time.Time
	executors []records.ExecutorID
	seen      map[records.ExecutorID][]int64 // beats to suspect at, old ones among them
	keys      []records.Reservation
	claims    map[records.ID][]records.Record // what was granted, old claims among them
}

func newWalk(f *fixture, t *rapid.T) *walk {
	w := &walk{
		f: f, model: newModel(), now: time.Now(),
		seen: make(map[records.ExecutorID][]int64), claims: make(map[records.ID][]records.Record),
	}
	for range 6 { // so many that the brake lets some fences through
		w.add(t, registration(records.Registration{Policy: w.policy(t)}))
	}
	for range 3 {
		w.keys = append(w.keys, reservation(records.ExecutorID{}))
	}
	return w
}

// leave takes the walk's executors out of the fleet, so that the next walk's
// brake counts none of them.
func (w *walk) leave() {
	for _, id := range w.executors {
		w.f.fence(id)
		held, err := w.f.store.InProgress(w.f.Context(), id, records.ID{}, 100)
		w.f.check(err)
		for _, r := range held {
			w.f.check(w.f.store.Release(w.f.Context(), r.ID, r.Fence()))
		}
	}
	w.f.check(errOf(w.f.store.PurgeExecutors(w.f.Context(), 0)))
}

func pick[T any](t *rapid.T, from []T, what string) T {
	return from[rapid.IntRange(0, len(from)-1).Draw(t, what)]
}

func (w *walk) executor(t *rapid.T) records.ExecutorID { return pick(t, w.executors, "executor") }

// claim draws a claim that was once granted; it may be long over.
func (w *walk) claim(t *rapid.T) records.Record {
	id := pick(t, w.keys, "key").ID
	if len(w.claims[id]) == 0 {
		t.Skip("never claimed")
	}
	return pick(t, w.claims[id], "claim")
}

var refusals = []error{
	records.ErrFenced, records.ErrNotActive, records.ErrNotFound, records.ErrInvalid, records.ErrSlotTaken,
	records.ErrRefuted, records.ErrLeaseHeld, records.ErrObserverUnfit, records.ErrBraked,
}

// sameError demands that the store refuses if, and as, the model does.
func sameError(t *rapid.T, got, want error) {
	if got == nil && want == nil {
		return
	}
	for _, refusal := range refusals {
		if errors.Is(got, refusal) && errors.Is(want, refusal) {
			return
		}
	}
	t.Fatalf("store says %v, model says %v", got, want)
}

// agree demands that the store's record is the model's, instants aside.
func (w *walk) agree(t *rapid.T, got records.Record) {
	want, ok := w.model.records[got.ID]
	if !ok {
		t.Fatalf("the store has %s by %s, the model nothing", got.State, got.Fence())
	}
	if diff := cmp.Diff(timeless(*want), timeless(got), sameHeaders); diff != "" {
		t.Fatalf("record (-model +store):\n%s", diff)
	}
}

func (w *walk) agreesOnAll(t *rapid.T) {
	for _, key := range w.keys {
		w.agreesOn(t, key.ID)
	}
	for _, id := range w.executors {
		got, want := w.f.executor(id), w.model.executors[id]
		if got.State != want.State || got.Beat != want.Beat || got.FencedBy != want.FencedBy {
			t.Fatalf("store has executor %s at beat %d, fenced by %s, model %s at %d by %s",
				got.State, got.Beat, got.FencedBy, want.State, want.Beat, want.FencedBy)
		}
	}
}

func (w *walk) agreesOn(t *rapid.T, id records.ID) {
	held, err := w.f.store.Load(w.f.Context(), id)
	if _, ok := w.model.records[id]; !ok {
		sameError(t, err, records.ErrNotFound)
		return
	}
	sameError(t, err, nil)
	w.agree(t, held.Record)
}

// granted notes a claim that both granted. A first claim's epoch is the
// store's clock, which the model takes over.
func (w *walk) granted(t *rapid.T, got records.Record) {
	if last := w.claims[got.ID]; len(last) > 0 && got.Epoch <= last[len(last)-1].Epoch {
		if got.Attempt != last[len(last)-1].Attempt {
			t.Fatalf("epoch %d granted after epoch %d", got.Epoch, last[len(last)-1].Epoch)
		}
	}
	w.claims[got.ID] = append(w.claims[got.ID], got)
	w.agree(t, got)
}

func (w *walk) reserve(t *rapid.T) {
	key := pick(t, w.keys, "key")
	r := again(key, w.executor(t))
	if old := w.claims[r.ID]; len(old) > 0 && rapid.IntRange(0, 4).Draw(t, "repeat") == 0 {
		claim := pick(t, old, "claim")
		r.By, r.Attempt = claim.Executor, claim.Attempt // a reply was lost, perhaps
	}
	r.Request = pick(t, [][]byte{nil, {}, []byte("request")}, "request")
	got, err := w.f.store.Reserve(w.f.Context(), r)
	old, existed := w.model.records[r.ID]
	granted := got.Owned || errors.Is(err, records.ErrNotActive)
	if existed && granted && !claimable(w.now, old) && w.mayBeForgotten(old) {
		old.ExpiresAt = time.Time{} // time did pass for this one
	}
	owned, _, wantErr := w.model.reserve(w.now, r)
	sameError(t, err, wantErr)
	if err != nil {
		return
	}
	if got.Owned != owned {
		t.Fatalf("owned: store says %t, model %t", got.Owned, owned)
	}
	if owned && !existed {
		w.model.records[r.ID].Epoch = got.Record.Epoch
	}
	if !owned {
		w.agree(t, got.Record)
		return
	}
	w.granted(t, got.Record)
}

// mayBeForgotten: only the grace remembers it, and that may be over.
func (w *walk) mayBeForgotten(r *records.Record) bool {
	return r.State != records.InProgress && !r.ExpiresAt.After(w.now)
}

func (w *walk) takeOver(t *rapid.T) {
	o := takeOver(w.claim(t), w.executor(t))
	o.SignedNotRunning = rapid.Bool().Draw(t, "signed")
	got, err := w.f.store.TakeOver(w.f.Context(), o)
	_, wantErr := w.model.takeOver(o)
	sameError(t, err, wantErr)
	if err == nil {
		w.granted(t, got)
	}
}

func (w *walk) claimUnknown(t *rapid.T) {
	c := claimOf(w.claim(t), w.executor(t))
	got, err := w.f.store.ClaimUnknown(w.f.Context(), c)
	_, wantErr := w.model.claimUnknown(c)
	sameError(t, err, wantErr)
	if err == nil {
		w.granted(t, got)
	}
}

var retentions = []time.Duration{0, long}

func (w *walk) finalize(t *rapid.T) {
	r := w.claim(t)
	o := outcome(rapid.StringN(0, 3, 3).Draw(t, "body"), pick(t, retentions, "retention"))
	err := w.f.store.Finalize(w.f.Context(), r.ID, r.Fence(), o)
	sameError(t, err, w.model.end(w.now, r.ID, r.Fence(), records.Finalized, &o.Response, o.Retention))
}

func (w *walk) release(t *rapid.T) {
	r := w.claim(t)
	err := w.f.store.Release(w.f.Context(), r.ID, r.Fence())
	sameError(t, err, w.model.end(w.now, r.ID, r.Fence(), records.Released, nil, 0))
}

func (w *walk) markUnknown(t *rapid.T) {
	r, retention := w.claim(t), pick(t, retentions, "retention")
	err := w.f.store.MarkUnknown(w.f.Context(), r.ID, r.Fence(), retention)
	sameError(t, err, w.model.end(w.now, r.ID, r.Fence(), records.Unknown, nil, retention))
}

func (w *walk) policy(t *rapid.T) records.Policy {
	return pick(t, []records.Policy{records.PolicyProbe, records.PolicyProbe, records.PolicyLease}, "policy")
}

func (w *walk) register(t *rapid.T) {
	r := registration(records.Registration{Policy: w.policy(t)})
	if rapid.Bool().Draw(t, "replaces") {
		old := w.model.executors[w.executor(t)]
		r.Slot = old.Slot
		r.Replaces = records.Sighting{Executor: old.ID, Beat: pick(t, w.seen[old.ID], "beat")}
	}
	w.add(t, r)
}

func (w *walk) add(t *rapid.T, r records.Registration) {
	got, err := w.f.store.Register(w.f.Context(), r)
	_, wantErr := w.model.register(w.now, r)
	sameError(t, err, wantErr)
	if err == nil {
		w.model.executors[r.ID].Beat = got.Beat // where counting begins is the store's affair
		w.executors = append(w.executors, r.ID)
		w.seen[r.ID] = []int64{got.Beat}
	}
}

func (w *walk) heartbeat(t *rapid.T) {
	id := w.executor(t)
	got, err := w.f.store.Heartbeat(w.f.Context(), id)
	want, wantErr := w.model.heartbeat(w.now, id)
	sameError(t, err, wantErr)
	if err != nil {
		return
	}
	if got.Beat != want.Beat {
		t.Fatalf("store is at beat %d, model at %d", got.Beat, want.Beat)
	}
	w.seen[id] = append(w.seen[id], got.Beat)
}

func (w *walk) drain(t *rapid.T) {
	id := w.executor(t)
	sameError(t, w.f.store.Drain(w.f.Context(), id), w.model.leave(id, records.Draining))
}

func (w *walk) retire(t *rapid.T) {
	id := w.executor(t)
	sameError(t, w.f.store.Retire(w.f.Context(), id), w.model.leave(id, records.Gone))
}

func (w *walk) fence(t *rapid.T) {
	suspect, observer := w.executor(t), w.executor(t)
	s := records.Suspicion{
		Suspect: suspect, Beat: pick(t, w.seen[suspect], "beat"), Probed: true,
		Observer: observer, ObserverBeat: pick(t, w.seen[observer], "observer's beat"),
		ObserverBeats: rapid.Int64Range(0, 2).Draw(t, "observer's beats"),
	}
	_, wantErr := w.model.fence(w.now, s)
	_, err := w.f.store.Fence(w.f.Context(), s)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("store says %v, model says %v", err, wantErr) // if several things are wrong, either may be named
	}
}

func (w *walk) purge(t *rapid.T) {
	w.f.check(errOf(w.f.store.Purge(w.f.Context(), 1000)))
	w.model.purge(w.now, 1000)
	for _, key := range w.keys {
		r, ok := w.model.records[key.ID]
		if ok && w.mayBeForgotten(r) {
			if _, err := w.f.store.Load(w.f.Context(), key.ID); errors.Is(err, records.ErrNotFound) {
				delete(w.model.records, key.ID)
			}
		}
		w.agreesOn(t, key.ID)
	}
}

func (w *walk) elapse(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "patience") > 0 {
		t.Skip("time does not pass")
	}
	w.f.elapse(Grace)
	w.now = w.now.Add(Grace + time.Millisecond)
}
