package recordstest

import (
	"context"
	"time"

	"github.com/probate-dev/probate/records"
)

// hastyStores decide rightly on what they read, and write it a moment later,
// as a read and a write in two statements would.
var hastyStores = []wrong{
	{"ReservesOnWhatItReadBefore", broken{
		reserve: func(ctx context.Context, s *memory, r records.Reservation) (records.Reserved, error) {
			if held, err := s.Load(ctx, r.ID); err == nil && !claimable(time.Now(), &held.Record) {
				return s.Reserve(ctx, r)
			}
			moment()
			tamper(s, func(m *model) {
				if old, ok := m.records[r.ID]; ok {
					old.State = records.Released
				}
			})
			return s.Reserve(ctx, r)
		},
	}, []string{
		"Race/OneOfManyReservesAKey", "Race/OneOfManyReclaimsAReleasedKey",
		"Race/BatchesOverTheSameKeysNeverBlockEachOther",
	}},
	{"ClaimsForAnExecutorThatWasActiveBefore", broken{
		reserve: func(ctx context.Context, s *memory, r records.Reservation) (records.Reserved, error) {
			if e, err := s.LoadExecutor(ctx, r.By); err != nil || e.State != records.Active {
				return s.Reserve(ctx, r)
			}
			moment()
			return as(ctx, s, r.By, func(m *model, now time.Time) (records.Reserved, error) {
				owned, rec, err := m.reserve(now, r)
				return records.Reserved{Owned: owned, Held: withExecutor(m, now, rec)}, err
			})
		},
		takeOver: func(ctx context.Context, s *memory, t records.TakeOver) (records.Record, error) {
			if e, err := s.LoadExecutor(ctx, t.By); err != nil || e.State != records.Active {
				return s.TakeOver(ctx, t)
			}
			moment()
			return as(ctx, s, t.By, func(m *model, _ time.Time) (records.Record, error) { return m.takeOver(t) })
		},
		claimUnknown: func(ctx context.Context, s *memory, c records.UnknownClaim) (records.Record, error) {
			if e, err := s.LoadExecutor(ctx, c.By); err != nil || e.State != records.Active {
				return s.ClaimUnknown(ctx, c)
			}
			moment()
			return as(ctx, s, c.By, func(m *model, _ time.Time) (records.Record, error) { return m.claimUnknown(c) })
		},
	}, []string{
		"RaceAlone/NoClaimLandsAfterTheFence", "RaceAlone/NoTakeOverLandsAfterTheFence",
		"RaceAlone/NoClaimOfAnUnknownLandsAfterTheFence", "Invariant/I9_NoRecordInProgressWithoutItsExecutor",
	}},
	{"TakesOverWhatItReadBefore", broken{
		takeOver: func(ctx context.Context, s *memory, t records.TakeOver) (records.Record, error) {
			held, err := s.Load(ctx, t.ID)
			if err != nil || held.Record.Fence() != t.From || held.Record.State != records.InProgress {
				return s.TakeOver(ctx, t)
			}
			moment()
			tamper(s, func(m *model) {
				m.records[t.ID].Executor, m.records[t.ID].Epoch = t.From.Executor, t.From.Epoch
				m.records[t.ID].State = records.InProgress
			})
			return s.TakeOver(ctx, t)
		},
	}, []string{"Race/OneOfManyTakesOver", "Race/TheOwnersEndOrATakeOverNotBoth"}},
	{"ReconcilesWhatItReadBefore", broken{
		claimUnknown: func(ctx context.Context, s *memory, c records.UnknownClaim) (records.Record, error) {
			held, err := s.Load(ctx, c.ID)
			if err != nil || held.Record.Epoch != c.Epoch || held.Record.State != records.Unknown {
				return s.ClaimUnknown(ctx, c)
			}
			moment()
			tamper(s, func(m *model) { m.records[c.ID].Epoch, m.records[c.ID].State = c.Epoch, records.Unknown })
			return s.ClaimUnknown(ctx, c)
		},
	}, []string{"Race/OneOfManyClaimsAnUnknownRecord"}},
	{"FinalizesWhatItReadBefore", broken{
		finalize: func(ctx context.Context, s *memory, id records.ID, f records.Fence, o records.Outcome) error {
			held, err := s.Load(ctx, id)
			if err != nil || held.Record.Fence() != f || held.Record.State != records.InProgress {
				return s.Finalize(ctx, id, f, o)
			}
			moment()
			tamper(s, func(m *model) {
				if r, ok := m.records[id]; ok {
					r.Executor, r.Epoch, r.State = f.Executor, f.Epoch, records.InProgress
				}
			})
			return s.Finalize(ctx, id, f, o)
		},
	}, []string{
		"Race/TheOwnersEndOrATakeOverNotBoth", "Race/ManyFinalizesKeepOneResponse",
		"Invariant/I1_I2_OneExecutorAndOneEndAnEpoch",
	}},
	{"FencesOnABeatItReadBefore", broken{
		fence: func(ctx context.Context, s *memory, c records.Suspicion) (records.Executor, error) {
			seen, err := s.LoadExecutor(ctx, c.Suspect)
			if err != nil || seen.Beat != c.Beat {
				return s.Fence(ctx, c)
			}
			moment()
			if now, err := s.LoadExecutor(ctx, c.Suspect); err == nil {
				c.Beat = now.Beat
			}
			return s.Fence(ctx, c)
		},
	}, []string{"Invariant/I4_NoFenceWhenABeatLandedSince"}},
	{"FencesForAnObserverThatWasActiveBefore", broken{
		fence: func(ctx context.Context, s *memory, c records.Suspicion) (records.Executor, error) {
			if e, err := s.LoadExecutor(ctx, c.Observer); err != nil || e.State != records.Active {
				return s.Fence(ctx, c)
			}
			moment()
			return as(ctx, s, c.Observer, func(m *model, now time.Time) (records.Executor, error) { return m.fence(now, c) })
		},
	}, []string{"Invariant/I4_NoFenceByAFencedObserver"}},
	{"CountsTheBrakeBefore", broken{
		fence: func(ctx context.Context, s *memory, c records.Suspicion) (records.Executor, error) {
			var free bool
			tamper(s, func(m *model) { free = m.fencedWithin(long, time.Now()) < max(1, m.alive()/2) })
			moment()
			if free {
				tamper(s, func(m *model) {
					for _, e := range m.executors {
						e.FencedAt = time.Time{}
					}
				})
			}
			return s.Fence(ctx, c)
		},
	}, []string{"Brake/OfARingOfFencesOneLands"}},
	{"BeatsForAnExecutorThatLivedBefore", broken{
		heartbeat: func(ctx context.Context, s *memory, id records.ExecutorID) (records.Executor, error) {
			if e, err := s.LoadExecutor(ctx, id); err != nil || e.State.Terminal() {
				return s.Heartbeat(ctx, id)
			}
			moment()
			return as(ctx, s, id, func(m *model, now time.Time) (records.Executor, error) { return m.heartbeat(now, id) })
		},
	}, []string{"Invariant/I3_NoBeatAfterAFence"}},
	{"GivesASlotToWhoeverFoundItFree", broken{
		register: func(ctx context.Context, s *memory, r records.Registration) (records.Executor, error) {
			free := true
			tamper(s, func(m *model) {
				for _, e := range m.executors {
					free = free && (e.Slot != r.Slot || !m.live(e.ID) || sighting(*e) == r.Replaces)
				}
			})
			if !free {
				return s.Register(ctx, r)
			}
			moment()
			tamper(s, func(m *model) {
				for _, e := range m.executors {
					if e.Slot == r.Slot && m.live(e.ID) {
						r.Replaces = sighting(*e)
					}
				}
			})
			return s.Register(ctx, r)
		},
	}, []string{"Register/OneOfManyWinsASlot", "Register/OneOfManyReplacesASilentBoot"}},
	{"PurgesWhatItReadBefore", broken{
		purge: func(_ context.Context, s *memory, limit int) (n int, _ error) {
			var stale []records.ID
			tamper(s, func(m *model) {
				for id, r := range m.records {
					if len(stale) < limit && forgotten(time.Now(), r) {
						stale = append(stale, id)
					}
				}
			})
			moment()
			tamper(s, func(m *model) {
				for _, id := range stale {
					delete(m.records, id)
				}
			})
			return len(stale), nil
		},
	}, []string{"Invariant/I11_PurgeTakesNoClaim", "Case/K12_AFreshClaimSurvivesARacingPurge"}},
}

// moment is the time between two statements.
func moment() { <-time.After(200 * time.Microsecond) }

// as decides as if the executor were active, whatever it is by now.
func as[T any](ctx context.Context, s *memory, id records.ExecutorID, decide func(m *model, now time.Time) (T, error)) (T, error) {
	return asked(ctx, s, func(m *model, now time.Time) (T, error) {
		e, there := m.executors[id]
		if !there {
			e = &records.Executor{ID: id}
			m.executors[id] = e
			defer delete(m.executors, id)
		}
		state := e.State
		e.State = records.Active
		defer func() { e.State = state }()
		return decide(m, now)
	})
}
