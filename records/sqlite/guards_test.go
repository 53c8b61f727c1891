package sqlite_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

// A guard is a condition of a statement. Its scenario breaks the rule that the
// guard keeps, if it can, and reports whether it could.
type guard struct {
	name     string
	text     string // the statement
	of       string // the condition in it
	instead  string // what stands there when the guard is taken out
	scenario func(n *node) (broken bool)
}

// TestGuard takes each guard out of its statement and demands that the rule it
// keeps then breaks: no guard is there for nothing, and each is watched.
func TestGuard(t *testing.T) {
	t.Parallel()
	for _, g := range append(executorGuards, recordGuards...) {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			t.Run("Holds", func(t *testing.T) {
				if g.scenario(newNode(t, sqlite.Config{})) {
					t.Error("the rule is broken")
				}
			})
			t.Run("IsNeeded", func(t *testing.T) {
				if !strings.Contains(g.text, g.of) {
					t.Fatalf("the statement does not hold %q", g.of)
				}
				without := func(text string) string {
					if text == g.text {
						return strings.Replace(text, g.of, g.instead, 1)
					}
					return text
				}
				if !g.scenario(newNode(t, sqlite.WithRewrite(sqlite.Config{}, without))) {
					t.Error("the rule holds without the guard")
				}
			})
		})
	}
}

// node is a store with a clock of its own.
type node struct {
	testing.TB
	*sqlite.Store
	clock *clock
	path  string
}

func newNode(t testing.TB, c sqlite.Config) *node {
	n := &node{TB: t, clock: newClock(), path: newPath(t)}
	c.Clock, c.Path = n.clock.Now, n.path
	n.Store = open(t, c)
	return n
}

func (n *node) register(r records.Registration) records.Executor {
	n.Helper()
	return register(n, n.Store, r)
}

func (n *node) kill(id records.ExecutorID) {
	n.Helper()
	if _, err := n.FenceByOperator(n.Context(), records.Condemnation{Executor: id, Actor: "operator", Reason: "test", Force: true}); err != nil {
		n.Fatal(err)
	}
}

func (n *node) beat(ids ...records.ExecutorID) {
	n.Helper()
	for _, id := range ids {
		if _, err := n.Heartbeat(n.Context(), id); err != nil {
			n.Fatal(err)
		}
	}
}

// landed tells a decision that was made from one that was refused.
func (n *node) landed(err, refusal error) bool {
	n.Helper()
	if err != nil && !errors.Is(err, refusal) {
		n.Fatalf("error = %v, want none or %v", err, refusal)
	}
	return err == nil
}

func (n *node) fences(s records.Suspicion, refusal error) bool {
	n.Helper()
	_, err := n.Fence(n.Context(), s)
	return n.landed(err, refusal)
}

func (n *node) takesOver(t records.TakeOver, refusal error) bool {
	n.Helper()
	t.Attempt = records.NewToken()
	_, err := n.TakeOver(n.Context(), t)
	return n.landed(err, refusal)
}

var executorGuards = []guard{
	{
		"FenceComparesTheBeat", sqlite.Fence, sqlite.Unrefuted, "TRUE",
		func(n *node) bool {
			a, b := n.register(records.Registration{}), n.register(records.Registration{})
			n.beat(a.ID)
			return n.fences(records.Suspicion{Suspect: a.ID, Beat: 0, Probed: true, Observer: b.ID}, records.ErrRefuted)
		},
	}, {
		"FenceReadsTheSuspectsPolicy", sqlite.Fence, sqlite.Unprotected, "TRUE",
		func(n *node) bool {
			a, b := n.register(records.Registration{Policy: records.PolicyLease}), n.register(records.Registration{})
			return n.fences(records.Suspicion{Suspect: a.ID, Probed: true, Observer: b.ID}, records.ErrLeaseHeld)
		},
	}, {
		"FenceNeedsAFitObserver", sqlite.Fence, sqlite.Observed, "TRUE",
		func(n *node) bool {
			a, b := n.register(records.Registration{}), n.register(records.Registration{})
			n.clock.Advance(31 * time.Minute) // b's last beat is older than half its lease
			return n.fences(records.Suspicion{Suspect: a.ID, Probed: true, Observer: b.ID}, records.ErrObserverUnfit)
		},
	}, {
		"FenceNeedsAnActiveObserver", sqlite.Fence, "m.state = 'active'", "TRUE",
		func(n *node) bool {
			a, b := n.register(records.Registration{LeaseTTL: time.Second}), n.register(records.Registration{})
			n.kill(b.ID)
			n.clock.Advance(2 * time.Second) // so that the brake has forgotten b
			return n.fences(records.Suspicion{Suspect: a.ID, Probed: true, Observer: b.ID}, records.ErrObserverUnfit)
		},
	}, {
		"FenceNeedsAnotherObserver", sqlite.Fence, "m.id <> d.id", "TRUE",
		func(n *node) bool {
			a := n.register(records.Registration{})
			return n.fences(records.Suspicion{Suspect: a.ID, Probed: true, Observer: a.ID}, records.ErrObserverUnfit)
		},
	}, {
		"StaleFenceNeedsAnUnbrokenRun", sqlite.Fence, "m.lease_since < ?1 - m.lease_ttl", "TRUE",
		func(n *node) bool {
			a, b := n.register(records.Registration{}), n.register(records.Registration{})
			n.clock.Advance(2 * time.Hour) // an outage of the store: nobody's beats landed
			n.beat(b.ID)
			return n.fences(records.Suspicion{Suspect: a.ID, Observer: b.ID}, records.ErrObserverUnfit)
		},
	}, {
		"FenceCountsTheObserversBeats", sqlite.Fence, "m.beat >= ?7", "TRUE",
		func(n *node) bool {
			a, b := n.register(records.Registration{}), n.register(records.Registration{})
			n.beat(b.ID)
			return n.fences(records.Suspicion{Suspect: a.ID, Probed: true, Observer: b.ID, ObserverBeats: 2}, records.ErrObserverUnfit)
		},
	}, {
		"TheBrakeCountsTheFleet", sqlite.Fence, sqlite.Unbraked, "TRUE",
		func(n *node) bool {
			a, b, c := n.register(records.Registration{}), n.register(records.Registration{}), n.register(records.Registration{})
			n.fences(records.Suspicion{Suspect: a.ID, Probed: true, Observer: b.ID}, nil)
			return n.fences(records.Suspicion{Suspect: b.ID, Probed: true, Observer: c.ID}, records.ErrBraked)
		},
	}, {
		"NoBeatAfterAFence", sqlite.Heartbeat, "AND state IN ('active', 'draining')", "",
		func(n *node) bool {
			a := n.register(records.Registration{})
			n.kill(a.ID)
			_, err := n.Heartbeat(n.Context(), a.ID)
			return n.landed(err, records.ErrNotActive)
		},
	}, {
		"ARegistrationReplacesOnlyTheBootItProbed", sqlite.FenceReplaced, "AND d.id = ?4", "",
		func(n *node) bool {
			n.register(records.Registration{Slot: "s"})
			return n.registers(records.Registration{Slot: "s"})
		},
	}, {
		"ARegistrationComparesTheBeat", sqlite.FenceReplaced, "d.beat = ?5", "?5 >= 0",
		func(n *node) bool {
			a := n.register(records.Registration{Slot: "s"})
			n.beat(a.ID)
			return n.registers(records.Registration{Slot: "s", Replaces: records.Sighting{Executor: a.ID}})
		},
	}, {
		"ARegistrationObeysALease", sqlite.FenceReplaced, "d.policy = 'probe'", "TRUE",
		func(n *node) bool {
			a := n.register(records.Registration{Slot: "s", Policy: records.PolicyLease})
			return n.registers(records.Registration{Slot: "s", Replaces: records.Sighting{Executor: a.ID}})
		},
	}, {
		"AnOperatorObeysALease", sqlite.FenceByOperator, sqlite.Expired, "TRUE",
		func(n *node) bool {
			a := n.register(records.Registration{})
			_, err := n.FenceByOperator(n.Context(), records.Condemnation{Executor: a.ID, Actor: "operator", Reason: "test"})
			return n.landed(err, records.ErrLeaseHeld)
		},
	}, {
		"NoRecordInProgressWithoutItsExecutor", sqlite.PurgeExecutors, "NOT EXISTS", "TRUE OR EXISTS",
		func(n *node) bool {
			a := n.register(records.Registration{})
			r := reserve(n, n.Store, a.ID)
			n.kill(a.ID)
			n.clock.Advance(time.Minute)
			if _, err := n.Store.PurgeExecutors(n.Context(), time.Second); err != nil {
				n.Fatal(err)
			}
			held, err := n.Load(n.Context(), r.ID)
			return n.landed(err, nil) && held.Executor.ID != a.ID
		},
	},
}

func (n *node) registers(r records.Registration) bool {
	n.Helper()
	_, err := n.Register(n.Context(), registration(r))
	return n.landed(err, records.ErrSlotTaken)
}

var recordGuards = []guard{
	{
		"ReserveLeavesAClaimAlone", sqlite.Reserve, sqlite.Claimable, "TRUE",
		func(n *node) bool {
			a := n.register(records.Registration{})
			r := reservation(a.ID)
			n.reserves(r)
			r.Attempt = records.NewToken()
			return n.reserves(r)
		},
	}, {
		"ReserveKeepsAResultForItsRetention", sqlite.Reserve, "r.expires_at < ?2", "TRUE",
		func(n *node) bool {
			a := n.register(records.Registration{})
			r := reservation(a.ID)
			n.finalizes(r.ID, n.reserved(r).Fence())
			r.Attempt = records.NewToken()
			return n.reserves(r)
		},
	}, {
		"ReserveNeedsAnActiveClaimant", sqlite.Reserve, "m.state = 'active'", "TRUE",
		func(n *node) bool {
			a := n.register(records.Registration{})
			n.kill(a.ID)
			return n.reserves(reservation(a.ID))
		},
	}, {
		"TakeOverNeedsAnActiveTaker", sqlite.TakeOver, "m.state = 'active'", "TRUE",
		func(n *node) bool {
			a, b := n.register(records.Registration{}), n.register(records.Registration{})
			r := reserve(n, n.Store, a.ID)
			n.kill(a.ID)
			n.kill(b.ID)
			return n.takesOver(records.TakeOver{ID: r.ID, From: r.Fence(), By: b.ID}, records.ErrNotActive)
		},
	}, {
		"TakeOverNeedsADeadPredecessor", sqlite.TakeOver, "EXISTS (SELECT 1 FROM executors p WHERE p.id = ?4 AND p.state IN ('fenced', 'gone'))", "TRUE",
		func(n *node) bool {
			a, b := n.register(records.Registration{}), n.register(records.Registration{})
			r := reserve(n, n.Store, a.ID)
			return n.takesOver(records.TakeOver{ID: r.ID, From: r.Fence(), By: b.ID}, records.ErrFenced)
		},
	}, {
		"TakeOverComparesTheEpoch", sqlite.TakeOver, "AND r.epoch = ?5", "",
		func(n *node) bool {
			a := n.register(records.Registration{})
			r := reserve(n, n.Store, a.ID)
			n.takesOver(records.TakeOver{ID: r.ID, From: r.Fence(), By: a.ID}, nil)
			return n.takesOver(records.TakeOver{ID: r.ID, From: r.Fence(), By: a.ID}, records.ErrFenced)
		},
	}, {
		"TakeOverLeavesAResultAlone", sqlite.TakeOver, "AND r.state = 'in_progress'", "AND r.state = 'released'",
		func(n *node) bool {
			a := n.register(records.Registration{})
			r := reserve(n, n.Store, a.ID)
			if err := n.Release(n.Context(), r.ID, r.Fence()); err != nil {
				n.Fatal(err)
			}
			return n.takesOver(records.TakeOver{ID: r.ID, From: r.Fence(), By: a.ID}, records.ErrFenced)
		},
	}, {
		"ClaimUnknownComparesTheEpoch", sqlite.ClaimUnknown, "r.epoch = ?4", "?4 > 0",
		func(n *node) bool {
			a := n.register(records.Registration{})
			r := reserve(n, n.Store, a.ID)
			if err := n.MarkUnknown(n.Context(), r.ID, r.Fence(), time.Hour); err != nil {
				n.Fatal(err)
			}
			_, err := n.ClaimUnknown(n.Context(), records.UnknownClaim{ID: r.ID, Epoch: r.Epoch - 1, By: a.ID, Attempt: records.NewToken()})
			return n.landed(err, records.ErrFenced)
		},
	}, {
		"FinalizeComparesTheEpoch", sqlite.Finalize, "AND epoch = ?4", "",
		func(n *node) bool {
			a := n.register(records.Registration{})
			r := reserve(n, n.Store, a.ID)
			n.takesOver(records.TakeOver{ID: r.ID, From: r.Fence(), By: a.ID}, nil)
			return n.finalizes(r.ID, r.Fence())
		},
	}, {
		"FinalizeComparesTheExecutor", sqlite.Finalize, "AND executor_id = ?3", "",
		func(n *node) bool {
			a, b := n.register(records.Registration{}), n.register(records.Registration{})
			r := reserve(n, n.Store, a.ID)
			return n.finalizes(r.ID, records.Fence{Executor: b.ID, Epoch: r.Epoch})
		},
	}, {
		"FinalizeNeedsARecordInProgress", sqlite.Finalize, "AND state = 'in_progress'", "",
		func(n *node) bool {
			a := n.register(records.Registration{})
			r := reserve(n, n.Store, a.ID)
			if err := n.Release(n.Context(), r.ID, r.Fence()); err != nil {
				n.Fatal(err)
			}
			return n.finalizes(r.ID, r.Fence())
		},
	}, {
		"AReleaseByHandComparesTheEpoch", sqlite.ReleaseByOperator, "epoch = ?3", "?3 > 0",
		func(n *node) bool {
			r := n.doubtful()
			_, err := n.ReleaseByOperator(n.Context(), records.Intervention{ID: r.ID, Epoch: r.Epoch - 1, Actor: "operator", Reason: "test"})
			return n.landed(err, records.ErrFenced)
		},
	}, {
		"AReleaseByHandNeedsADeadExecutor", sqlite.ReleaseByOperator, " AND d.state IN ('fenced', 'gone')", "",
		func(n *node) bool {
			r := reserve(n, n.Store, n.register(records.Registration{}).ID)
			_, err := n.ReleaseByOperator(n.Context(), records.Intervention{ID: r.ID, Epoch: r.Epoch, Actor: "operator", Reason: "test"})
			return n.landed(err, records.ErrFenced)
		},
	}, {
		"AResolutionComparesTheEpoch", sqlite.ResolveByOperator, "epoch = ?3", "?3 > 0",
		func(n *node) bool {
			r := n.doubtful()
			return n.resolves(records.Intervention{ID: r.ID, Epoch: r.Epoch - 1, Actor: "operator", Reason: "test"})
		},
	}, {
		"AResolutionNeedsAnUnknownRecord", sqlite.ResolveByOperator, "\n   AND state = 'unknown'", "",
		func(n *node) bool {
			r := reserve(n, n.Store, n.register(records.Registration{}).ID)
			n.kill(r.Executor)
			return n.resolves(records.Intervention{ID: r.ID, Epoch: r.Epoch, Actor: "operator", Reason: "test"})
		},
	}, {
		"AnErasureLeavesAClaimAlone", sqlite.EraseRecord, "state <> 'in_progress'", "TRUE",
		func(n *node) bool {
			r := reserve(n, n.Store, n.register(records.Registration{}).ID)
			e := records.Erasure{Realm: "realm", Principal: "principal", Actor: "operator", Reason: "test", Limit: 10}
			if _, err := n.Erase(n.Context(), e); err != nil {
				n.Fatal(err)
			}
			held, err := n.Load(n.Context(), r.ID)
			if err != nil {
				n.Fatal(err)
			}
			return held.Record.Key != r.Key
		},
	}, {
		"PurgeLeavesAClaimAlone", sqlite.Purge, "expires_at < ?1", "TRUE",
		func(n *node) bool {
			a := n.register(records.Registration{})
			r := reserve(n, n.Store, a.ID)
			if _, err := n.Store.Purge(n.Context(), 10); err != nil {
				n.Fatal(err)
			}
			_, err := n.Load(n.Context(), r.ID)
			return !n.landed(err, records.ErrNotFound)
		},
	},
}

// doubtful leaves a record of unknown outcome.
func (n *node) doubtful() records.Record {
	n.Helper()
	r := reserve(n, n.Store, n.register(records.Registration{}).ID)
	if err := n.MarkUnknown(n.Context(), r.ID, r.Fence(), time.Hour); err != nil {
		n.Fatal(err)
	}
	return r
}

func (n *node) resolves(i records.Intervention) bool {
	n.Helper()
	o := records.Outcome{Response: records.Response{Status: 200}, Retention: time.Hour}
	_, err := n.ResolveByOperator(n.Context(), i, o)
	return n.landed(err, records.ErrFenced)
}

func (n *node) reserves(r records.Reservation) bool {
	n.Helper()
	got, err := n.Reserve(n.Context(), r)
	return n.landed(err, records.ErrNotActive) && got.Owned
}

func (n *node) reserved(r records.Reservation) records.Record {
	n.Helper()
	got, err := n.Reserve(n.Context(), r)
	if err != nil || !got.Owned {
		n.Fatalf("reserve: owned %t, %v", got.Owned, err)
	}
	return got.Record
}

func (n *node) finalizes(id records.ID, f records.Fence) bool {
	n.Helper()
	o := records.Outcome{Response: records.Response{Status: 200}, Retention: time.Hour}
	return n.landed(n.Finalize(n.Context(), id, f, o), records.ErrFenced)
}
