package recordstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/probate-dev/probate/records"
)

// atOnce calls do n times, all at once, and returns what each returned.
func atOnce(n int, do func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = do(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// isAny reports whether err is one of the targets.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// oneWins demands that one call of n succeeds and the others lose with the
// given error. It returns the winner.
func (f *fixture) oneWins(n int, lost error, do func(i int) error) int {
	f.Helper()
	winner, winners := -1, 0
	for i, err := range atOnce(n, do) {
		switch {
		case err == nil:
			winner = i
			winners++
		case !errors.Is(err, lost):
			f.Errorf("loser's error = %v, want %v", err, lost)
		}
	}
	if winners != 1 {
		f.Fatalf("%d of %d won, want 1", winners, n)
	}
	return winner
}

// errNotOwned is how a lost reservation counts in a race.
var errNotOwned = errors.New("not owned")

func reserveOn(ctx context.Context, s records.Store, r records.Reservation) error {
	got, err := s.Reserve(ctx, r)
	if err == nil && !got.Owned {
		return errNotOwned
	}
	return err
}

// These share a database with everybody else.
var raceRules = group{name: "Race", rules: []rule{
	{"OneOfManyReservesAKey", func(f *fixture) {
		nodes, by := f.nodes(2), f.active(records.Registration{})
		for range 5 {
			tries := make([]records.Reservation, 16)
			tries[0] = reservation(by.ID)
			for i := range tries {
				tries[i] = again(tries[0], by.ID)
			}
			winner := f.oneWins(len(tries), errNotOwned, func(i int) error {
				return reserveOn(f.Context(), nodes[i%2], tries[i])
			})
			f.equal("attempt", f.load(tries[0].ID).Record.Attempt, tries[winner].Attempt)
		}
	}},
	{"ManyCallsWithOneTokenAreOneClaim", func(f *fixture) {
		nodes, r := f.nodes(2), reservation(f.active(records.Registration{}).ID)
		for _, err := range atOnce(16, func(i int) error { return reserveOn(f.Context(), nodes[i%2], r) }) {
			f.check(err)
		}
		f.equal("attempt", f.load(r.ID).Record.Attempt, r.Attempt)
	}},
	{"OneOfManyReclaimsAReleasedKey", func(f *fixture) {
		nodes, by := f.nodes(2), f.active(records.Registration{})
		r := reservation(by.ID)
		for range 5 {
			before := f.reserve(again(r, by.ID))
			f.check(f.store.Release(f.Context(), r.ID, before.Fence()))
			f.oneWins(16, errNotOwned, func(i int) error {
				return reserveOn(f.Context(), nodes[i%2], again(r, by.ID))
			})
			got := f.load(r.ID).Record
			f.equal("epoch", got.Epoch, before.Epoch+1)
			f.check(f.store.Release(f.Context(), r.ID, got.Fence()))
		}
	}},
	{"OneOfManyTakesOver", func(f *fixture) {
		nodes, a, b := f.nodes(2), f.active(records.Registration{}), f.active(records.Registration{})
		held := f.claims(a.ID, 5)
		f.fence(a.ID)
		for _, r := range held {
			f.oneWins(16, records.ErrFenced, func(i int) error {
				return errOf(nodes[i%2].TakeOver(f.Context(), takeOver(r, b.ID)))
			})
			got := f.load(r.ID).Record
			f.equal("epoch", got.Epoch, r.Epoch+1)
			f.equal("take-overs", got.Takeovers, 1)
		}
	}},
	{"OneOfManyClaimsAnUnknownRecord", func(f *fixture) {
		nodes, a := f.nodes(2), f.active(records.Registration{})
		for range 5 {
			r := f.unknown(a.ID)
			f.oneWins(16, records.ErrFenced, func(i int) error {
				return errOf(nodes[i%2].ClaimUnknown(f.Context(), claimOf(r, a.ID)))
			})
			f.equal("epoch", f.load(r.ID).Record.Epoch, r.Epoch+1)
		}
	}},
	{"TheOwnersEndOrATakeOverNotBoth", func(f *fixture) {
		nodes, a, b := f.nodes(2), f.active(records.Registration{}), f.active(records.Registration{})
		contenders := 2 * len(ends)
		for round := range contenders { // each may be the one that starts first
			r := f.claim(a.ID)
			winner := f.oneWins(contenders, records.ErrFenced, func(i int) error {
				if who := (i + round) % contenders; who < len(ends) {
					return ends[who].write(f.Context(), nodes[i%2], r.ID, r.Fence())
				}
				t := takeOver(r, b.ID)
				t.SignedNotRunning = true
				return errOf(nodes[i%2].TakeOver(f.Context(), t))
			})
			want := records.InProgress
			if who := (winner + round) % contenders; who < len(ends) {
				want = ends[who].state
			}
			f.equal("state", f.load(r.ID).Record.State, want)
		}
	}},
	{"ManyFinalizesKeepOneResponse", func(f *fixture) {
		nodes, a := f.nodes(2), f.active(records.Registration{})
		for range 5 {
			r := f.claim(a.ID)
			seen := make([]string, 16)
			for _, err := range atOnce(len(seen), func(i int) error {
				n := nodes[i%2]
				if err := n.Finalize(f.Context(), r.ID, r.Fence(), outcome(fmt.Sprint(i), long)); err != nil {
					return err
				}
				got, err := n.Load(f.Context(), r.ID)
				if err == nil && got.Record.Response != nil {
					seen[i] = string(got.Record.Response.Body)
				}
				return err
			}) {
				f.check(err)
			}
			final := string(f.load(r.ID).Record.Response.Body)
			for i, body := range seen {
				if body != final {
					f.Errorf("call %d read response %q, in the end it is %q", i, body, final)
				}
			}
		}
	}},
	{"AWriteUnderAnOldFenceNeverStandsInForTheHolders", func(f *fixture) {
		a := f.active(records.Registration{})
		for range 5 {
			f.holderAmongTheOvertaken(a.ID, 12)
		}
	}},
	{"AReleaseThatLandedIsNotRefusedBecauseOfTheNextClaim", func(f *fixture) {
		nodes, a := f.nodes(2), f.active(records.Registration{})
		for range 10 {
			f.releasesAmongOvertaken(nodes, a.ID, 24)
		}
	}},
	{"BatchesOverTheSameKeysNeverBlockEachOther", func(f *fixture) {
		f.sameKeysInAnyOrder(f.nodes(2), f.active(records.Registration{}).ID, 24)
	}},
	{"ACancelledCallerLosesNobodyElsesRow", func(f *fixture) {
		f.someCallersLeave(f.active(records.Registration{}).ID, 48)
	}},
}}

// sameKeysInAnyOrder lets each node's callers reserve and finalize the same
// keys, the second node's from the other end, so that their batches meet in
// opposite orders.
func (f *fixture) sameKeysInAnyOrder(nodes []records.Store, by records.ExecutorID, keys int) {
	f.Helper()
	wanted := make([]records.Reservation, keys)
	for i := range wanted {
		wanted[i] = reservation(by)
	}
	owners := make([]atomic.Int32, keys)
	for _, err := range atOnce(len(nodes)*keys, func(i int) error {
		node, key := i/keys, i%keys
		if node%2 == 1 {
			key = keys - 1 - key
		}
		got, err := nodes[node].Reserve(f.Context(), again(wanted[key], by))
		if err != nil {
			return err
		}
		if got.Owned {
			owners[key].Add(1)
		}
		return nodes[node].Finalize(f.Context(), got.Record.ID, got.Record.Fence(), outcome("done", long))
	}) {
		f.check(err)
	}
	for i := range owners {
		f.equal("owners", int(owners[i].Load()), 1)
		f.equal("state", f.load(wanted[i].ID).Record.State, records.Finalized)
	}
}

// holderAmongTheOvertaken lets one node's callers write to one record at once:
// those who held it before, and the one who holds it. In whatever order a store
// takes them together, they are refused and it is not.
func (f *fixture) holderAmongTheOvertaken(by records.ExecutorID, n int) {
	f.Helper()
	held := []records.Record{f.claim(by)}
	for len(held) < n {
		last := held[len(held)-1]
		next, err := f.store.TakeOver(f.Context(), takeOver(last, by))
		f.check(err)
		held = append(held, next)
	}
	errs := atOnce(n, func(i int) error {
		return f.store.Finalize(f.Context(), held[i].ID, held[i].Fence(), outcome("done", long))
	})
	f.check(errs[n-1])
	for _, err := range errs[:n-1] {
		f.refused(err, records.ErrFenced)
	}
	f.equal("state", f.load(held[0].ID).Record.State, records.Finalized)
}

// releasesAmongOvertaken lets one node's callers release what they hold, all at
// once and among others who hold nothing any more, while another node's wait
// for the keys. Whoever held its record when it released it is told so, even
// if it was claimed anew a moment later.
func (f *fixture) releasesAmongOvertaken(nodes []records.Store, by records.ExecutorID, n int) {
	f.Helper()
	wanted, held := make([]records.Reservation, n), make([]records.Record, n)
	for i := range wanted {
		wanted[i] = reservation(by)
		held[i] = f.reserve(wanted[i])
		if i%4 == 0 {
			f.check(errOf(f.store.TakeOver(f.Context(), takeOver(held[i], by))))
		}
	}
	for i, err := range atOnce(2*n, func(i int) error {
		r := held[i%n]
		if i < n {
			return nodes[0].Release(f.Context(), r.ID, r.Fence())
		}
		for i%4 != 0 {
			if err := reserveOn(f.Context(), nodes[1], again(wanted[i%n], by)); !errors.Is(err, errNotOwned) {
				return err
			}
		}
		return nil
	}) {
		if i < n && i%4 == 0 {
			f.refused(err, records.ErrFenced)
		} else {
			f.check(err)
		}
	}
}

// someCallersLeave cancels every other caller while its reservation is on its
// way. The others get theirs, and those who left find out by their token.
func (f *fixture) someCallersLeave(by records.ExecutorID, n int) {
	f.Helper()
	left := errors.New("left")
	stays := f.Context()
	ctx, cancel := context.WithCancelCause(stays)
	wanted := make([]records.Reservation, n)
	for i := range wanted {
		wanted[i] = reservation(by)
	}
	for i, err := range atOnce(n, func(i int) error {
		if i%2 == 0 {
			return reserveOn(stays, f.store, wanted[i])
		}
		if i == n/2+1 {
			cancel(left)
		}
		return reserveOn(ctx, f.store, wanted[i])
	}) {
		if err != nil && (i%2 == 0 || !errors.Is(err, left)) {
			f.Errorf("caller %d: %v", i, err)
		}
	}
	for _, r := range wanted {
		f.reserve(r)
	}
}

// These count rows of their own.
var ownRaceRules = group{name: "RaceAlone", alone: true, rules: []rule{
	{"NoClaimLandsAfterTheFence", func(f *fixture) {
		for range 6 {
			f.claimsUntilFenced(func(ctx context.Context, s records.Store, by records.ExecutorID) error {
				return errOf(s.Reserve(ctx, reservation(by)))
			})
		}
	}},
	{"NoTakeOverLandsAfterTheFence", func(f *fixture) {
		for range 6 {
			dead := f.active(records.Registration{})
			orphans := make(chan records.Record, 100)
			for _, r := range f.claims(dead.ID, cap(orphans)) {
				orphans <- r
			}
			f.fence(dead.ID)
			f.claimsUntilFenced(func(ctx context.Context, s records.Store, by records.ExecutorID) error {
				select {
				case r := <-orphans:
					return errOf(s.TakeOver(ctx, takeOver(r, by)))
				default:
					return errOf(s.Reserve(ctx, reservation(by)))
				}
			})
		}
	}},
	{"NoClaimOfAnUnknownLandsAfterTheFence", func(f *fixture) {
		owner := f.active(records.Registration{})
		lost := make(chan records.Record, 60)
		for range cap(lost) {
			lost <- f.unknown(owner.ID)
		}
		f.claimsUntilFenced(func(ctx context.Context, s records.Store, by records.ExecutorID) error {
			select {
			case r := <-lost:
				return errOf(s.ClaimUnknown(ctx, claimOf(r, by)))
			default:
				return errOf(s.Reserve(ctx, reservation(by)))
			}
		})
	}},
}}

// claimsUntilFenced lets an executor claim on two nodes as fast as it can
// until it is fenced. What it holds once the fence has returned is all that it
// ever holds: a claim that was on its way must not land behind it.
func (f *fixture) claimsUntilFenced(claim func(context.Context, records.Store, records.ExecutorID) error) {
	f.Helper()
	nodes, victim := f.nodes(2), f.active(records.Registration{})
	var claimed atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 { // a bound, should the fence be slow
				err := claim(f.Context(), nodes[i%2], victim.ID)
				if errors.Is(err, records.ErrNotActive) {
					return
				}
				if err != nil {
					f.Errorf("claim: %v", err)
					return
				}
				claimed.Add(1)
			}
		})
	}
	f.await("claims are under way", func() bool { return claimed.Load() > 8 || f.Failed() })
	f.fence(victim.ID)
	atFence, err := countHeld(f.Context(), f.store, victim.ID)
	wg.Wait()
	f.check(err)
	after, err := countHeld(f.Context(), f.store, victim.ID)
	f.check(err)
	if after != atFence {
		f.Errorf("%d records held when the fence returned, %d later", atFence, after)
	}
	if after != int(claimed.Load()) {
		f.Errorf("%d claims were granted, %d records are held", claimed.Load(), after)
	}
}

func countHeld(ctx context.Context, s records.Store, by records.ExecutorID) (n int, _ error) {
	var after records.ID
	for {
		page, err := s.InProgress(ctx, by, after, 1000)
		if err != nil || len(page) == 0 {
			return n, err
		}
		n += len(page)
		after = page[len(page)-1].ID
	}
}
