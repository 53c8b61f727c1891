package recordstest

import (
	"bytes"
	"context"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
)

// broken is a store with some of its methods replaced by wrong ones.
type broken struct {
	*memory
	register       func(context.Context, *memory, records.Registration) (records.Executor, error)
	heartbeat      func(context.Context, *memory, records.ExecutorID) (records.Executor, error)
	fence          func(context.Context, *memory, records.Suspicion) (records.Executor, error)
	purgeExecutors func(context.Context, *memory, time.Duration) (int, error)
	reserve        func(context.Context, *memory, records.Reservation) (records.Reserved, error)
	takeOver       func(context.Context, *memory, records.TakeOver) (records.Record, error)
	claimUnknown   func(context.Context, *memory, records.UnknownClaim) (records.Record, error)
	finalize       func(context.Context, *memory, records.ID, records.Fence, records.Outcome) error
	purge          func(context.Context, *memory, int) (int, error)

	condemn func(context.Context, *memory, records.Condemnation) (records.Executor, error)

	byHand func(context.Context, *memory, records.Intervention, *records.Outcome) (records.Record, error)
	erase  func(context.Context, *memory, records.Erasure) (records.Erased, error)
	note   func(context.Context, *memory, []records.Occurrence) error
}

func (b broken) Register(ctx context.Context, r records.Registration) (records.Executor, error) {
	if b.register == nil {
		return b.memory.Register(ctx, r)
	}
	return b.register(ctx, b.memory, r)
}

func (b broken) Heartbeat(ctx context.Context, id records.ExecutorID) (records.Executor, error) {
	if b.heartbeat == nil {
		return b.memory.Heartbeat(ctx, id)
	}
	return b.heartbeat(ctx, b.memory, id)
}

func (b broken) Fence(ctx context.Context, s records.Suspicion) (records.Executor, error) {
	if b.fence == nil {
		return b.memory.Fence(ctx, s)
	}
	return b.fence(ctx, b.memory, s)
}

func (b broken) PurgeExecutors(ctx context.Context, age time.Duration) (int, error) {
	if b.purgeExecutors == nil {
		return b.memory.PurgeExecutors(ctx, age)
	}
	return b.purgeExecutors(ctx, b.memory, age)
}

func (b broken) Reserve(ctx context.Context, r records.Reservation) (records.Reserved, error) {
	if b.reserve == nil {
		return b.memory.Reserve(ctx, r)
	}
	return b.reserve(ctx, b.memory, r)
}

func (b broken) TakeOver(ctx context.Context, t records.TakeOver) (records.Record, error) {
	if b.takeOver == nil {
		return b.memory.TakeOver(ctx, t)
	}
	return b.takeOver(ctx, b.memory, t)
}

func (b broken) ClaimUnknown(ctx context.Context, c records.UnknownClaim) (records.Record, error) {
	if b.claimUnknown == nil {
		return b.memory.ClaimUnknown(ctx, c)
	}
	return b.claimUnknown(ctx, b.memory, c)
}

func (b broken) Finalize(ctx context.Context, id records.ID, f records.Fence, o records.Outcome) error {
	if b.finalize == nil {
		return b.memory.Finalize(ctx, id, f, o)
	}
	return b.finalize(ctx, b.memory, id, f, o)
}

func (b broken) Purge(ctx context.Context, limit int) (int, error) {
	if b.purge == nil {
		return b.memory.Purge(ctx, limit)
	}
	return b.purge(ctx, b.memory, limit)
}

// tamper changes the model behind a store's back.
func tamper(s *memory, change func(m *model)) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	change(s.db.model)
}

// wrong is a store that breaks a promise, and the rules that must notice.
type wrong struct {
	what   string
	store  broken
	caught []string
}

func TestSuite_RefusesBrokenStores(t *testing.T) {
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "0s"} {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range slices.Concat(wrongStores, hastyStores, wrongHands) {
		t.Run(w.what, func(t *testing.T) {
			for _, name := range w.caught {
				r := find(t, name)
				fresh := freshMemory(func(s *memory) records.Store {
					b := w.store
					b.memory = s
					return b
				})
				// A race shows only on some runs.
				caught := false
				for n := 0; n < 30 && !caught; n++ {
					caught = len(verdict(t, r, fresh)) > 0
				}
				if !caught {
					t.Errorf("%s found nothing wrong", name)
				}
			}
		})
	}
}

// find returns the rule that a test name such as "Fence/OnlyTheDead" means.
func find(t *testing.T, name string) rule {
	t.Helper()
	inGroup, inRule, _ := strings.Cut(name, "/")
	for _, g := range groups() {
		for _, r := range g.rules {
			if g.name == inGroup && r.name == inRule {
				return r
			}
		}
	}
	t.Fatalf("no rule %s", name)
	return rule{}
}

// wrongStores decide wrongly.
var wrongStores = []wrong{
	{"IgnoresEpochs", broken{
		finalize: func(ctx context.Context, s *memory, id records.ID, f records.Fence, o records.Outcome) error {
			if held, err := s.Load(ctx, id); err == nil {
				f = held.Record.Fence()
			}
			return s.Finalize(ctx, id, f, o)
		},
	}, []string{
		"End/FinalizeRefusesAnotherEpoch", "End/FinalizeRefusesAnOlderEpochOfTheSameExecutor",
		"TakeOver/OvertakenTheFirstOwnerWritesNothing", "Invariant/I1_I2_OneExecutorAndOneEndAnEpoch",
		"Case/K03_AnOwnerThatOutlivedItsLeaseLeavesTheSuccessorAlone", "Model/ARandomWalkAgreesWithTheModel",
	}},
	{"ReusesEpochs", broken{
		reserve: func(ctx context.Context, s *memory, r records.Reservation) (records.Reserved, error) {
			before, err := s.Load(ctx, r.ID)
			got, errReserve := s.Reserve(ctx, r)
			if err == nil && errReserve == nil && got.Owned {
				tamper(s, func(m *model) { m.records[r.ID].Epoch = before.Record.Epoch })
				got.Record.Epoch = before.Record.Epoch
			}
			return got, errReserve
		},
	}, []string{
		"Claimable/AReleasedKeyAtOnce", "Race/OneOfManyReclaimsAReleasedKey",
		"Invariant/I1_I2_OneExecutorAndOneEndAnEpoch", "Model/ARandomWalkAgreesWithTheModel",
	}},
	{"CountsEpochsFromOne", broken{
		reserve: func(ctx context.Context, s *memory, r records.Reservation) (records.Reserved, error) {
			_, errLoad := s.Load(ctx, r.ID)
			got, err := s.Reserve(ctx, r)
			if errLoad != nil && err == nil {
				tamper(s, func(m *model) { m.records[r.ID].Epoch = 1 })
				got.Record.Epoch = 1
			}
			return got, err
		},
	}, []string{
		"Reserve/AFirstClaimsEpochIsTheDatabasesClock", "Purge/APurgedKeyComesBackWithAGreaterEpoch",
		"Purge/AReclaimedKeyThatIsPurgedStillGrows",
	}},
	{"SkipsTheBeatCompare", broken{
		fence: func(ctx context.Context, s *memory, c records.Suspicion) (records.Executor, error) {
			if e, err := s.LoadExecutor(ctx, c.Suspect); err == nil {
				c.Beat = e.Beat
			}
			return s.Fence(ctx, c)
		},
	}, []string{
		"FenceRefuses/ASuspectWhoseHeartbeatLandedSince", "FenceRefuses/AnExpiredLeaseWhoseHolderBeatSince",
		"Invariant/I12_AHealthyFleetFencesNobody", "Model/ARandomWalkAgreesWithTheModel",
	}},
	{"TrustsEveryProbe", broken{
		fence: func(ctx context.Context, s *memory, c records.Suspicion) (records.Executor, error) {
			tamper(s, func(m *model) {
				if d, ok := m.executors[c.Suspect]; ok {
					d.Policy = records.PolicyProbe
				}
			})
			return s.Fence(ctx, c)
		},
	}, []string{
		"FenceRefuses/AProbeAgainstALeaseThatRuns", "FenceRefuses/TheObserversPolicyIsNotAsked",
		"FenceRefuses/AMonotonicClockWhileTheDatabasesTellsTheTruth", "Invariant/I4_NoFenceWithinALease",
	}},
	{"TrustsEveryObserver", broken{
		fence: func(ctx context.Context, s *memory, c records.Suspicion) (records.Executor, error) {
			e, err := s.Register(ctx, registration(records.Registration{}))
			if err != nil {
				return e, err
			}
			tamper(s, func(m *model) { m.executors[e.ID].LeaseSince = time.Time{} })
			c.Observer, c.ObserverBeat, c.ObserverBeats = e.ID, 0, 0
			return s.Fence(ctx, c)
		},
	}, []string{
		"FenceRefuses/AnObserverWithAStaleHeartbeat", "FenceRefuses/AnObserverWithoutBeatsSinceTheFailure",
		"FenceRefuses/AStalePathByAnObserverWithAYoungRun", "FenceRefuses/AnObserverThatIsNotActive",
		"Invariant/I4_NoFenceByAFencedObserver", "Invariant/I12_AnOutageMakesNobodyAnObserver",
	}},
	{"HasNoBrake", broken{
		fence: func(ctx context.Context, s *memory, c records.Suspicion) (records.Executor, error) {
			tamper(s, func(m *model) {
				for _, e := range m.executors {
					e.FencedAt = time.Time{}
				}
			})
			return s.Fence(ctx, c)
		},
	}, []string{
		"Brake/OfAFleetOf3ItLosesAtMost1", "Brake/OfAFleetOf5ItLosesAtMost2",
		"Brake/CountsTheFleetAndNotTheObserver", "Brake/OfARingOfFencesOneLands",
	}},
	{"RevivesTheFenced", broken{
		register: func(ctx context.Context, s *memory, r records.Registration) (records.Executor, error) {
			tamper(s, func(m *model) { delete(m.executors, r.ID) })
			return s.Register(ctx, r)
		},
		heartbeat: func(ctx context.Context, s *memory, id records.ExecutorID) (records.Executor, error) {
			revive(s, id)
			return s.Heartbeat(ctx, id)
		},
	}, []string{
		"Register/NeverRevivesAFencedBoot", "Register/NeverRevivesABootThatLeft",
		"Heartbeat/RefusesTerminalAndUnknownExecutors", "Fence/AfterItNothingTheExecutorDoesLands",
	}},
	{"GivesASlotAway", broken{
		register: func(ctx context.Context, s *memory, r records.Registration) (records.Executor, error) {
			tamper(s, func(m *model) {
				for _, e := range m.executors {
					if e.Slot == r.Slot && m.live(e.ID) {
						r.Replaces, e.Policy = sighting(*e), records.PolicyProbe
					}
				}
			})
			return s.Register(ctx, r)
		},
	}, []string{
		"Register/RefusesASlotThatAnotherBootHolds", "Register/ABeatAfterTheSightingRefutesIt",
		"Register/ALeaseThatRunsProtectsItsHolder", "Register/OneOfManyWinsASlot",
	}},
	{"LetsAnybodyClaim", broken{
		reserve: func(ctx context.Context, s *memory, r records.Reservation) (records.Reserved, error) {
			revive(s, r.By)
			return s.Reserve(ctx, r)
		},
		takeOver: func(ctx context.Context, s *memory, t records.TakeOver) (records.Record, error) {
			revive(s, t.By)
			return s.TakeOver(ctx, t)
		},
		claimUnknown: func(ctx context.Context, s *memory, c records.UnknownClaim) (records.Record, error) {
			revive(s, c.By)
			return s.ClaimUnknown(ctx, c)
		},
	}, []string{
		"Reserve/NeedsAnActiveExecutor", "TakeOverRefuses/ATakerThatIsNotActive", "ClaimUnknown/NeedsAnActiveExecutor",
		"Fence/AfterItNothingTheExecutorDoesLands", "Model/ARandomWalkAgreesWithTheModel",
	}},
	{"TakesOverFromTheLiving", broken{
		takeOver: func(ctx context.Context, s *memory, t records.TakeOver) (records.Record, error) {
			t.SignedNotRunning = true
			return s.TakeOver(ctx, t)
		},
	}, []string{
		"TakeOverRefuses/WhileTheExecutorLives", "Invariant/I5_NothingChangesHandsBeforeTheFence",
		"Model/ARandomWalkAgreesWithTheModel",
	}},
	{"ForgetsItsTokens", broken{
		reserve: func(ctx context.Context, s *memory, r records.Reservation) (records.Reserved, error) {
			got, err := s.Reserve(ctx, r)
			tamper(s, func(m *model) {
				if rec, ok := m.records[r.ID]; ok && got.Owned {
					rec.Attempt = records.NewToken()
				}
			})
			return got, err
		},
		takeOver: func(ctx context.Context, s *memory, t records.TakeOver) (records.Record, error) {
			t.Attempt = records.NewToken()
			return s.TakeOver(ctx, t)
		},
		claimUnknown: func(ctx context.Context, s *memory, c records.UnknownClaim) (records.Record, error) {
			c.Attempt = records.NewToken()
			return s.ClaimUnknown(ctx, c)
		},
	}, []string{
		"LostReply/OfAReservation", "LostReply/OfATakeOver", "LostReply/OfAClaimOfAnUnknownRecord",
		"Race/ManyCallsWithOneTokenAreOneClaim",
	}},
	{"KeepsTheLastResponse", broken{
		finalize: func(ctx context.Context, s *memory, id records.ID, f records.Fence, o records.Outcome) error {
			err := s.Finalize(ctx, id, f, o)
			if err == nil {
				tamper(s, func(m *model) { m.records[id].Response = &o.Response })
			}
			return err
		},
	}, []string{"Finalize/RepeatedItKeepsTheFirstResponse", "Race/ManyFinalizesKeepOneResponse"}},
	{"ChangesBytes", broken{
		reserve: func(ctx context.Context, s *memory, r records.Reservation) (records.Reserved, error) {
			r.Key = strings.ToValidUTF8(r.Key, "\uFFFD")
			r.Request = append([]byte(nil), r.Request...)
			return s.Reserve(ctx, r)
		},
		finalize: func(ctx context.Context, s *memory, id records.ID, f records.Fence, o records.Outcome) error {
			o.Response.Body = append([]byte(nil), o.Response.Body...)
			o.Response.Headers = slices.Compact(slices.Clone(o.Response.Headers))
			return s.Finalize(ctx, id, f, o)
		},
	}, []string{
		"Input/ComesBackByteForByte", "Input/AnEmptyRequestIsNotNone", "Input/AnEmptyBodyIsNotNone",
		"Input/HeadersKeepTheirOrderAndRepeats",
	}},
	{"PurgesWhatIsInProgress", broken{
		purge: func(_ context.Context, s *memory, _ int) (n int, _ error) {
			tamper(s, func(m *model) {
				n = len(m.records)
				clear(m.records)
			})
			return n, nil
		},
	}, []string{
		"Purge/NeverTakesARecordInProgress", "Purge/KeepsWhatItsRetentionProtects", "Purge/DeletesAtMostTheLimit",
		"Purge/WaitsForTheGrace", "Case/K12_ARecordInProgressPastItsRetentionIsNeverPurged",
		"Invariant/I11_PurgeTakesNoClaim", "Model/ARandomWalkAgreesWithTheModel",
	}},
	{"ForgetsWithoutGrace", broken{
		reserve: func(ctx context.Context, s *memory, r records.Reservation) (records.Reserved, error) {
			tamper(s, func(m *model) {
				if old, ok := m.records[r.ID]; ok && old.State != records.InProgress {
					old.State = records.Released
				}
			})
			return s.Reserve(ctx, r)
		},
	}, []string{
		"Claimable/AFinalizedKeyOnlyAfterItsRetentionAndGrace", "Claimable/AnUnknownKeyOnlyAfterItsRetentionAndGrace",
		"Claimable/NotWhileTheRetentionRuns", "Reserve/ADuplicateOfAFinalizedKeyGetsTheResponse",
	}},
	{"ComparesFingerprintsOfTheForgotten", broken{
		reserve: func(ctx context.Context, s *memory, r records.Reservation) (records.Reserved, error) {
			held, err := s.Load(ctx, r.ID)
			if err == nil && !bytes.Equal(held.Record.Fingerprint[:], r.Fingerprint[:]) {
				return records.Reserved{Held: held}, nil
			}
			return s.Reserve(ctx, r)
		},
	}, []string{"Claimable/TheNewClaimReplacesWhatWasAsked"}},
}

func revive(s *memory, id records.ExecutorID) {
	tamper(s, func(m *model) {
		e, ok := m.executors[id]
		if !ok {
			e = &records.Executor{ID: id}
			m.executors[id] = e
		}
		e.State = records.Active
	})
}
