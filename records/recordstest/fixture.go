package recordstest

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/probate-dev/probate/records"
)

// long is a lease or a retention that no test outlives.
const long = time.Hour

// fixture is what a rule works with: a test, a node's store, and a way to open
// other nodes' stores over the same database.
type fixture struct {
	testing.TB
	store records.Store
	open  func(t testing.TB) records.Store
}

func newFixture(t testing.TB, fresh Fresh) *fixture {
	t.Helper()
	open := fresh(t)
	return &fixture{TB: t, store: open(t), open: open}
}

// nodes opens n stores over the database, as n processes would.
func (f *fixture) nodes(n int) []records.Store {
	f.Helper()
	stores := make([]records.Store, n)
	for i := range stores {
		stores[i] = f.open(f)
	}
	return stores
}

// check stops the rule on an error.
func (f *fixture) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// refused demands that err is the given refusal.
func (f *fixture) refused(err, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Errorf("error = %v, want %v", err, want)
	}
}

// equal demands that two values are the same. Instants compare as instants,
// and a list of no headers is no list; a body that is empty is not one that is
// missing.
func (f *fixture) equal(what string, got, want any) {
	f.Helper()
	if reflect.DeepEqual(got, want) {
		return // the usual case, and far quicker to see
	}
	if diff := cmp.Diff(want, got, sameHeaders); diff != "" {
		f.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

var sameHeaders = cmp.Transformer("headers", func(r records.Response) any {
	type shown struct {
		Status  int
		Headers []records.Header
		Body    []byte
	}
	return shown{r.Status, append([]records.Header{}, r.Headers...), r.Body}
})

// await polls until done reports true.
func (f *fixture) await(what string, done func() bool) {
	f.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			f.Fatalf("did not happen within a minute: %s", what)
		}
	}
}

// elapse returns once the database's clock has moved on by more than d. It
// watches the age of an executor that has already gone, so no brake counts it.
func (f *fixture) elapse(d time.Duration) {
	f.Helper()
	clock := f.gone(records.Registration{})
	f.await("the database's clock moves on", func() bool {
		return f.executor(clock.ID).HeartbeatAge > d
	})
}

// registration fills what the rule left open: a random boot in a slot of its
// own, under policy probe, with a lease that does not run out.
func registration(r records.Registration) records.Registration {
	if r.ID == (records.ExecutorID{}) {
		r.ID = newExecutorID()
	}
	if r.Slot == "" {
		r.Slot = "slot-" + r.ID.String()
	}
	if r.URL == "" {
		r.URL = "http://" + r.ID.String() + ".example:8081"
	}
	if r.PublicKey == nil {
		r.PublicKey = randomBytes(ed25519.PublicKeySize)
	}
	if r.Policy == "" {
		r.Policy = records.PolicyProbe
	}
	if r.LeaseTTL == 0 {
		r.LeaseTTL = long
	}
	return r
}

// active registers an executor.
func (f *fixture) active(r records.Registration) records.Executor {
	f.Helper()
	e, err := f.store.Register(f.Context(), registration(r))
	f.check(err)
	return e
}

// draining registers an executor and drains it.
func (f *fixture) draining(r records.Registration) records.Executor {
	f.Helper()
	e := f.active(r)
	f.check(f.store.Drain(f.Context(), e.ID))
	return e
}

// gone registers an executor, drains it and retires it.
func (f *fixture) gone(r records.Registration) records.Executor {
	f.Helper()
	e := f.draining(r)
	f.check(f.store.Retire(f.Context(), e.ID))
	return e
}

// fenced registers an executor and fences it, past every brake.
func (f *fixture) fenced(r records.Registration) records.Executor {
	f.Helper()
	e := f.active(r)
	f.fence(e.ID)
	return e
}

// fence fences at a person's word, which no brake and no lease delays.
func (f *fixture) fence(id records.ExecutorID) {
	f.Helper()
	_, err := f.store.FenceByOperator(f.Context(), records.Condemnation{Executor: id, Actor: "test", Reason: "test", Force: true})
	f.check(err)
}

func (f *fixture) executor(id records.ExecutorID) records.Executor {
	f.Helper()
	e, err := f.store.LoadExecutor(f.Context(), id)
	f.check(err)
	return e
}

func (f *fixture) beat(id records.ExecutorID) records.Executor {
	f.Helper()
	e, err := f.store.Heartbeat(f.Context(), id)
	f.check(err)
	return e
}

// reservation asks for a key that nobody used before.
func reservation(by records.ExecutorID) records.Reservation {
	key := records.Key{Realm: "realm", Principal: "principal", Key: string(randomBytes(16))}
	return records.Reservation{
		ID: key.ID(), Realm: key.Realm, Key: key.Key,
		Operation: "POST /orders", Resource: "/orders/7",
		Fingerprint: records.FingerprintOf("POST", "/orders", "{}"),
		By:          by, Attempt: records.NewToken(),
	}
}

// again is another caller's reservation of the same key.
func again(r records.Reservation, by records.ExecutorID) records.Reservation {
	r.By, r.Attempt = by, records.NewToken()
	return r
}

// reserve demands that the reservation is granted.
func (f *fixture) reserve(r records.Reservation) records.Record {
	f.Helper()
	got, err := f.store.Reserve(f.Context(), r)
	f.check(err)
	if !got.Owned {
		f.Fatalf("reservation not granted; there stands %s by %s", got.Record.State, got.Record.Fence())
	}
	return got.Record
}

// claim reserves a fresh key.
func (f *fixture) claim(by records.ExecutorID) records.Record {
	f.Helper()
	return f.reserve(reservation(by))
}

func (f *fixture) load(id records.ID) records.Held {
	f.Helper()
	held, err := f.store.Load(f.Context(), id)
	f.check(err)
	return held
}

func (f *fixture) finalize(r records.Record, o records.Outcome) {
	f.Helper()
	f.check(f.store.Finalize(f.Context(), r.ID, r.Fence(), o))
}

// unknown claims a fresh key and marks it unknown.
func (f *fixture) unknown(by records.ExecutorID) records.Record {
	f.Helper()
	r := f.claim(by)
	f.check(f.store.MarkUnknown(f.Context(), r.ID, r.Fence(), long))
	return f.load(r.ID).Record
}

// unchanged demands that the record stands exactly as before.
func (f *fixture) unchanged(before records.Record) {
	f.Helper()
	f.equal("record", f.load(before.ID).Record, before)
}

// outcome is a response to remember for the retention.
func outcome(body string, retention time.Duration) records.Outcome {
	return records.Outcome{
		Response: records.Response{
			Status:  201,
			Headers: []records.Header{{Name: "Content-Type", Value: "text/plain"}},
			Body:    []byte(body),
		},
		Retention: retention,
	}
}

// takeOver is a request for r, as it stands, by another executor.
func takeOver(r records.Record, by records.ExecutorID) records.TakeOver {
	return records.TakeOver{ID: r.ID, From: r.Fence(), By: by, Attempt: records.NewToken()}
}

func claimOf(r records.Record, by records.ExecutorID) records.UnknownClaim {
	return records.UnknownClaim{ID: r.ID, Epoch: r.Epoch, By: by, Attempt: records.NewToken()}
}

func newExecutorID() (id records.ExecutorID) {
	copy(id[:], randomBytes(len(id)))
	return id
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}
