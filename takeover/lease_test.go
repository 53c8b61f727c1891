package takeover

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/probate-dev/probate/records"
)

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

func defaultTrust() Trust {
	return Trust{Policy: records.PolicyProbe, LeaseTTL: 15 * time.Second, Margin: 3 * time.Second, ProbeBudget: 5 * time.Second}
}

// going is a lease that was renewed now.
func going() *lease {
	l := newLease(defaultTrust())
	l.renew(time.Now())
	return l
}

// endedBy reports a context that did not end for the wanted cause, or, with
// none, that ended.
func endedBy(ctx context.Context, want error) error {
	synctest.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, want) {
		return fmt.Errorf("context ended for %w", errors.Join(cause, errors.New("and not as wanted")))
	}
	return nil
}

func TestLease(t *testing.T) {
	t.Parallel()
	inBubble(t, "ThatHasNotBegunHoldsNothing", func(t *testing.T) {
		l := newLease(defaultTrust())
		if l.held() || l.ctx.Err() == nil {
			t.Error("held")
		}
	})

	inBubble(t, "EndsAMarginBeforeItsTimeCountedFromTheSending", func(t *testing.T) {
		sent := time.Now()
		<-time.After(2 * time.Second) // the reply was slow
		l := newLease(defaultTrust())
		l.renew(sent)
		ctx := l.ctx
		<-time.After(10*time.Second - time.Nanosecond)
		if err := endedBy(ctx, nil); err != nil || !l.held() {
			t.Errorf("held %t: %v", l.held(), err)
		}
		<-time.After(time.Nanosecond)
		if err := endedBy(ctx, ErrLeaseLost); err != nil || l.held() {
			t.Errorf("held %t: %v", l.held(), err)
		}
	})

	inBubble(t, "GoesOnUnderOneContextWhileItIsRenewed", func(t *testing.T) {
		l := going()
		ctx := l.ctx
		for range 100 {
			<-time.After(11 * time.Second)
			l.renew(time.Now())
		}
		if err := endedBy(ctx, nil); err != nil {
			t.Error(err)
		}
		l.end(ErrStopped)
	})

	inBubble(t, "ThatWasLostBeginsAgainUnderAnotherContext", func(t *testing.T) {
		l := going()
		old := l.ctx
		<-time.After(time.Minute)
		l.renew(time.Now())
		if err := errors.Join(endedBy(old, ErrLeaseLost), endedBy(l.ctx, nil)); err != nil {
			t.Error(err)
		}
		l.end(ErrStopped)
	})

	inBubble(t, "IgnoresRepliesThatCameTooLateOrOutOfOrder", func(t *testing.T) {
		l := going()
		early := time.Now()
		<-time.After(5 * time.Second)
		l.renew(time.Now())
		l.renew(early)
		if age := l.age(); age != 0 {
			t.Errorf("it is %s old: a younger heartbeat was forgotten", age)
		}
		<-time.After(12 * time.Second)
		l.renew(early.Add(5 * time.Second)) // sent 12 s ago
		if l.held() {
			t.Error("renewed by a reply that came after its own end")
		}
	})

	inBubble(t, "EndsForGoodWithItsFirstCause", func(t *testing.T) {
		l := going()
		ctx := l.ctx
		l.end(ErrExecutorFenced)
		l.end(ErrStopped)
		l.renew(time.Now())
		if err := endedBy(ctx, ErrExecutorFenced); err != nil || l.held() {
			t.Errorf("held %t: %v", l.held(), err)
		}
		if _, err := l.awaitStart(t.Context(), 0, func() {}); !errors.Is(err, ErrExecutorFenced) {
			t.Errorf("start: %v", err)
		}
	})

	inBubble(t, "LetsWorkStartOnlyWhileAHeartbeatIsYoung", func(t *testing.T) {
		l := going()
		<-time.After(4*time.Second - time.Nanosecond)
		kicks := 0
		kick := func() { kicks++ }
		if _, err := l.awaitStart(t.Context(), 0, kick); err != nil || kicks != 0 {
			t.Errorf("start: %v after %d kicks", err, kicks)
		}
		<-time.After(time.Nanosecond)
		started := make(chan context.Context)
		go func() {
			ctx, err := l.awaitStart(t.Context(), 0, kick)
			if err != nil {
				t.Error(err)
			}
			started <- ctx
		}()
		synctest.Wait()
		select {
		case <-started:
			t.Fatal("started on an old heartbeat")
		default:
		}
		if kicks != 1 {
			t.Errorf("%d kicks", kicks)
		}
		l.renew(time.Now())
		if ctx := <-started; ctx.Err() != nil {
			t.Error("started under a lease that has ended")
		}
		l.end(ErrStopped)
	})

	inBubble(t, "TellsWhoeverWaitsToStartThatItEnded", func(t *testing.T) {
		l := newLease(defaultTrust())
		got := make(chan error)
		for range 3 {
			go func() {
				_, err := l.awaitStart(t.Context(), 0, func() {})
				got <- err
			}()
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		quit := make(chan error)
		go func() {
			_, err := l.awaitStart(ctx, 0, func() {})
			quit <- err
		}()
		cancel(gone)
		if err := <-quit; !errors.Is(err, gone) {
			t.Errorf("start: %v", err)
		}
		l.end(ErrExecutorFenced)
		for range 3 {
			if err := <-got; !errors.Is(err, ErrExecutorFenced) {
				t.Errorf("start: %v", err)
			}
		}
	})
}

func TestRunningSet(t *testing.T) {
	t.Parallel()
	one, two := records.ID{1}, records.ID{2}

	inBubble(t, "KeepsAnEntryUntilItsLastHolderLeaves", func(t *testing.T) {
		r := newRunningSet()
		r.enter(one)
		r.enter(one)
		done, running := r.Entry(one)
		if !running {
			t.Fatal("not running")
		}
		r.leave(one)
		if _, running := r.Entry(one); !running {
			t.Error("idle while one holds it")
		}
		r.leave(one)
		<-done
		if _, running := r.Entry(one); running || r.size() != 0 {
			t.Error("running when nobody holds it")
		}
	})

	inBubble(t, "AnotherEntryOfARecordIsAnotherChannel", func(t *testing.T) {
		r := newRunningSet()
		r.enter(one)
		r.leave(one)
		r.enter(one)
		done, _ := r.Entry(one)
		select {
		case <-done:
			t.Error("closed while it runs again")
		default:
		}
		r.leave(one)
		<-done
	})

	inBubble(t, "IsWaitedForUntilItIsEmpty", func(t *testing.T) {
		r := newRunningSet()
		if err := r.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.enter(one)
		r.enter(two)
		empty := make(chan error)
		go func() { empty <- r.wait(t.Context()) }()
		r.leave(one)
		synctest.Wait()
		select {
		case err := <-empty:
			t.Fatalf("empty with an entry: %v", err)
		default:
		}
		r.leave(two)
		if err := <-empty; err != nil {
			t.Error(err)
		}
		r.enter(one)
		limit, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.wait(limit); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait: %v", err)
		}
	})
}

func TestFlights(t *testing.T) {
	t.Parallel()
	req := Request{Key: records.Key{Key: "k"}, Fingerprint: records.FingerprintOf("one")}
	id := req.Key.ID()
	other := req
	other.Fingerprint = records.FingerprintOf("two")

	inBubble(t, "CarryAllWhoAskTheSame", func(t *testing.T) {
		fs := newFlights()
		f, pilot := fs.board(id, req, nil)
		again, second := fs.board(id, req, nil)
		if f != again || !pilot || second {
			t.Error("two flights for one question")
		}
		different, first := fs.board(id, other, nil)
		if different == f || !first {
			t.Error("one flight for two questions")
		}
		if n := f.ground(); n != 1 {
			t.Errorf("%d others wait", n)
		}
		if next, pilot := fs.board(id, req, nil); next == f || !pilot {
			t.Error("boarded a flight that is grounded")
		}
	})

	inBubble(t, "CountWhoWaitsAfterTheFirstCallerLeft", func(t *testing.T) {
		fs := newFlights()
		f, _ := fs.board(id, req, nil)
		fs.board(id, req, nil)
		f.leave(true)
		if n := f.ground(); n != 1 {
			t.Errorf("%d others wait", n)
		}
	})

	inBubble(t, "AreAbandonedOnlyWhileTheyWatch", func(t *testing.T) {
		fs := newFlights()
		f, _ := fs.board(id, req, nil)
		ctx, done, ok := f.watch(t.Context())
		if !ok {
			t.Fatal("nobody waits")
		}
		done()
		f.leave(true)
		if cause := context.Cause(ctx); errors.Is(cause, errNobodyWaits) {
			t.Error("abandoned while it executed")
		}
		if _, _, ok := f.watch(t.Context()); ok {
			t.Error("watches for nobody")
		}
		g, _ := fs.board(id, req, nil)
		ctx, done, _ = g.watch(t.Context())
		defer done()
		g.leave(true)
		if err := endedBy(ctx, errNobodyWaits); err != nil {
			t.Error(err)
		}
	})

	inBubble(t, "AreWaitedForUntilAllHaveLanded", func(t *testing.T) {
		fs := newFlights()
		f, _ := fs.board(id, req, nil)
		g, _ := fs.board(id, other, nil)
		empty := make(chan error)
		go func() { empty <- fs.wait(t.Context()) }()
		fs.land(f, landing{})
		synctest.Wait()
		select {
		case err := <-empty:
			t.Fatalf("one is under way: %v", err)
		default:
		}
		fs.land(g, landing{})
		if err := <-empty; err != nil {
			t.Error(err)
		}
		if len(fs.all) != 0 {
			t.Errorf("%d are remembered", len(fs.all))
		}
	})

	inBubble(t, "TellTheFirstCallerItsOwnAnswerWhateverCameAfter", func(t *testing.T) {
		fs := newFlights()
		f, _ := fs.board(id, req, nil)
		f.settle(Answer{Outcome: Executed})
		fs.land(f, landing{err: ErrNotServing})
		if a, _, err := f.arrive(true); err != nil || a.Outcome != Executed {
			t.Errorf("the first was told %s, %v", a.Outcome, err)
		}
		if _, _, err := f.arrive(false); !errors.Is(err, ErrNotServing) {
			t.Errorf("the others were told %v", err)
		}
	})

	inBubble(t, "AfterTheEndNoneBegins", func(t *testing.T) {
		fs := newFlights()
		req := Request{Key: records.Key{Key: "k"}}
		under, _ := fs.board(req.Key.ID(), req, nil)
		fs.end()
		if f, pilot := fs.board(req.Key.ID(), req, nil); f != under || pilot {
			t.Error("the one under way cannot be joined")
		}
		other := Request{Key: records.Key{Key: "other"}}
		if f, _ := fs.board(other.Key.ID(), other, nil); f != nil {
			t.Error("another began")
		}
		fs.land(under, landing{err: ErrNotServing})
		if f, _ := fs.board(req.Key.ID(), req, nil); f != nil {
			t.Error("it began again")
		}
		if err := fs.wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestDefinite(t *testing.T) {
	t.Parallel()
	node := func(t *testing.T) *Node {
		t.Helper()
		n, err := New(Config{Slot: "a", URL: "http://a:1"}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}

	inBubble(t, "RepeatsWhatIsUncertainWithoutEnd", func(t *testing.T) {
		begun, calls := time.Now(), 0
		got, err := definite(t.Context(), node(t), func(context.Context) (int, error) {
			if calls++; time.Since(begun) < time.Hour {
				return 0, fmt.Errorf("call: %w", records.ErrUnavailable)
			}
			return 7, nil
		})
		if err != nil || got != 7 {
			t.Errorf("%d, %v", got, err)
		}
		if perSecond := float64(calls) / 3600; perSecond > 2.1 || perSecond < 0.6 {
			t.Errorf("%.1f calls a second: want about one a heartbeat", perSecond)
		}
	})

	inBubble(t, "TakesARefusalForAnAnswer", func(t *testing.T) {
		calls := 0
		_, err := definite(t.Context(), node(t), func(context.Context) (int, error) {
			calls++
			return 0, records.ErrFenced
		})
		if !errors.Is(err, records.ErrFenced) || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
	})

	inBubble(t, "EndsWithItsContext", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		_, err := definite(ctx, node(t), func(context.Context) (int, error) { return 0, records.ErrUnavailable })
		if !uncertain(err) || time.Since(begun) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}
