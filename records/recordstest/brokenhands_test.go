package recordstest

import (
	"context"
	"slices"

	"github.com/probate-dev/probate/records"
)

func (b broken) ReleaseByOperator(ctx context.Context, i records.Intervention) (records.Record, error) {
	if b.byHand == nil {
		return b.memory.ReleaseByOperator(ctx, i)
	}
	return b.byHand(ctx, b.memory, i, nil)
}

func (b broken) ResolveByOperator(ctx context.Context, i records.Intervention, o records.Outcome) (records.Record, error) {
	if b.byHand == nil {
		return b.memory.ResolveByOperator(ctx, i, o)
	}
	return b.byHand(ctx, b.memory, i, &o)
}

func (b broken) Erase(ctx context.Context, e records.Erasure) (records.Erased, error) {
	if b.erase == nil {
		return b.memory.Erase(ctx, e)
	}
	return b.erase(ctx, b.memory, e)
}

func (b broken) Note(ctx context.Context, o []records.Occurrence) error {
	if b.note == nil {
		return b.memory.Note(ctx, o)
	}
	return b.note(ctx, b.memory, o)
}

func (b broken) FenceByOperator(ctx context.Context, c records.Condemnation) (records.Executor, error) {
	if b.condemn == nil {
		return b.memory.FenceByOperator(ctx, c)
	}
	return b.condemn(ctx, b.memory, c)
}

// hand is what an operator does on a memory store.
func hand(ctx context.Context, s *memory, i records.Intervention, o *records.Outcome) (records.Record, error) {
	if o == nil {
		return s.ReleaseByOperator(ctx, i)
	}
	return s.ResolveByOperator(ctx, i, *o)
}

// wrongHands let operators do what they may not, or forget what they did.
var wrongHands = []wrong{
	{"LetsAnOperatorOverrideWhatHeDidNotSee", broken{
		byHand: func(ctx context.Context, s *memory, i records.Intervention, o *records.Outcome) (records.Record, error) {
			if held, err := s.Load(ctx, i.ID); err == nil && i.Validate() == nil {
				i.Epoch = held.Record.Epoch
			}
			return hand(ctx, s, i, o)
		},
	}, []string{
		"ReleaseByOperator/RefusesWhatThePersonDidNotSeeToRelease", "ResolveByOperator/RefusesWhatThePersonDidNotSeeToResolve",
		"Model/ARandomWalkAgreesWithTheModel",
	}},
	{"TakesARecordFromALivingExecutor", broken{
		byHand: func(ctx context.Context, s *memory, i records.Intervention, o *records.Outcome) (records.Record, error) {
			tamper(s, func(m *model) {
				if r, ok := m.records[i.ID]; ok && r.State == records.InProgress {
					r.State = records.Unknown
				}
			})
			return hand(ctx, s, i, o)
		},
	}, []string{
		"ReleaseByOperator/RefusesARecordInProgressOfAnExecutorThatMayLive", "ResolveByOperator/RefusesAnythingButUnknown",
		"Model/ARandomWalkAgreesWithTheModel",
	}},
	{"KeepsTheEpochOfWhatAnOperatorEnds", broken{
		byHand: func(ctx context.Context, s *memory, i records.Intervention, o *records.Outcome) (records.Record, error) {
			r, err := hand(ctx, s, i, o)
			if err == nil {
				r.Epoch = i.Epoch
				tamper(s, func(m *model) { m.records[i.ID].Epoch = i.Epoch })
			}
			return r, err
		},
	}, []string{"ReleaseByOperator/AfterItTheOwnerOfBeforeWritesNothing", "ReleaseByOperator/FreesAnUnknownRecord"}},
	{"DoesNotNoteWhatAnOperatorDoes", broken{
		byHand: func(ctx context.Context, s *memory, i records.Intervention, o *records.Outcome) (records.Record, error) {
			r, err := hand(ctx, s, i, o)
			tamper(s, func(m *model) { m.audit = nil })
			return r, err
		},
		erase: func(ctx context.Context, s *memory, e records.Erasure) (records.Erased, error) {
			done, err := s.Erase(ctx, e)
			tamper(s, func(m *model) { m.audit = nil })
			return done, err
		},
	}, []string{
		"ReleaseByOperator/FreesAnUnknownRecord", "ResolveByOperator/EndsAnUnknownRecordWithTheOutcome",
		"Erase/LeavesAnEventThatDoesNotSayWhose", "Erase/ThatFindsNothingLeavesOneEventOnItsLastPage",
	}},
	{"DoesNotNoteWhyAnOperatorFences", broken{
		condemn: func(ctx context.Context, s *memory, c records.Condemnation) (records.Executor, error) {
			if c.Validate() == nil {
				c.Actor, c.Reason = c.Actor+": "+c.Reason, "by hand"
			}
			return s.FenceByOperator(ctx, c)
		},
	}, []string{"FenceByOperator/WithForceWhateverThePolicyOrTheBrake", "Events/AFenceByHandLeavesOne"}},
	{"FencesAtNobodysWord", broken{
		condemn: func(ctx context.Context, s *memory, c records.Condemnation) (records.Executor, error) {
			if c.Validate() != nil {
				c.Actor, c.Reason = "somebody", "somehow"
			}
			return s.FenceByOperator(ctx, c)
		},
	}, []string{"FenceByOperator/RefusesWhatCannotBeNoted"}},
	{"NotesARepeatAnew", broken{
		byHand: func(ctx context.Context, s *memory, i records.Intervention, o *records.Outcome) (records.Record, error) {
			r, err := hand(ctx, s, i, o)
			if err == nil {
				tamper(s, func(m *model) { m.note(m.audit[len(m.audit)-1].event) })
			}
			return r, err
		},
	}, []string{"ReleaseByOperator/KnowsItsOwnRowWhenItsReplyWasLost", "ResolveByOperator/KnowsItsOwnRowWhenItsReplyWasLost"}},
	{"ErasesWhatIsInProgress", broken{
		erase: func(ctx context.Context, s *memory, e records.Erasure) (records.Erased, error) {
			tamper(s, func(m *model) {
				for _, r := range m.records {
					if r.State == records.InProgress && e.Of(r.ID, r.Key) {
						r.Key, r.Resource, r.Request = "", "", nil
					}
				}
			})
			return s.Erase(ctx, e)
		},
	}, []string{"Erase/LeavesAndCountsWhatIsInProgress", "Model/ARandomWalkAgreesWithTheModel"}},
	{"DeletesWhatItErases", broken{
		erase: func(ctx context.Context, s *memory, e records.Erasure) (records.Erased, error) {
			done, err := s.Erase(ctx, e)
			tamper(s, func(m *model) {
				for id, r := range m.records {
					if r.Key == "" && r.State != records.InProgress {
						delete(m.records, id)
					}
				}
			})
			return done, err
		},
	}, []string{"Erase/LeavesTombstones", "Erase/ALateDuplicateDoesNotRunAgain"}},
	{"TellsNobodyOfAnErasure", broken{
		erase: func(ctx context.Context, s *memory, e records.Erasure) (records.Erased, error) {
			done, err := s.Erase(ctx, e)
			tamper(s, func(m *model) { m.erasures = 0 })
			return done, err
		},
	}, []string{"Erase/IsSeenByTheNextHeartbeatOfEveryNode"}},
	{"NumbersAnEventBeforeOthersThatWereRead", broken{
		note: func(ctx context.Context, s *memory, o []records.Occurrence) error {
			err := s.Note(ctx, o)
			tamper(s, func(m *model) { // a sequence: the later number has committed first
				if n := len(m.audit); n > 1 && n%2 == 0 {
					m.audit[n-1].event, m.audit[n-2].event = m.audit[n-2].event, m.audit[n-1].event
				}
			})
			return err
		},
	}, []string{"Events/APageThatWasReadDoesNotChange"}},
	{"UsesNumbersAgain", broken{
		note: func(ctx context.Context, s *memory, o []records.Occurrence) error {
			tamper(s, func(m *model) { m.written = len(m.audit) })
			return s.Note(ctx, o)
		},
	}, []string{"Events/ANumberIsNotUsedAgainAfterAPurge"}},
	{"NotesWhatFitsAndDropsTheRest", broken{
		note: func(ctx context.Context, s *memory, o []records.Occurrence) error {
			bad := slices.IndexFunc(o, func(o records.Occurrence) bool { return records.ValidateOccurrences([]records.Occurrence{o}) != nil })
			if bad > 0 {
				_ = s.Note(ctx, o[:bad])
			}
			return s.Note(ctx, o)
		},
	}, []string{"Events/RefuseWhatCouldNeverBeNoted"}},
}
