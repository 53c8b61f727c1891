package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/probate-dev/probate/records"
)

// Statements that tests take a guard out of, or explain.
const (
	ReserveOne     = reserveOne
	ReserveMany    = reserveMany
	LoadMany       = loadMany
	SettleOne      = settleOne
	SettleMany     = settleMany
	TakeOver       = takeOver
	ClaimUnknown   = claimUnknown
	Heartbeat      = heartbeat
	FenceStatement = fence
	LockFleet      = lockFleet
	LockExecutor   = lockExecutor
	FenceReplaced  = fenceReplaced
	Purge          = purge
	Orphans        = orphans
	InProgress     = inProgress
	LockTerminal   = lockTerminal
	SettledMany    = settledMany
	PurgeExecutors = purgeExecutors

	NoteEvents        = noteEvents
	PurgeEvents       = purgeEvents
	ReleaseByOperator = releaseByOperator
	ResolveByOperator = resolveByOperator
	ExamineRealm      = examineRealm
	EraseRecords      = eraseRecords
)

// EventsText is the statement of a page of events.
var EventsText = eventsText

// A Mutation takes a guard out of a statement, or weakens it.
type Mutation struct{ In, Guard, By string }

// OpenMutated opens a store whose statements were mutated. It panics if a
// guard is not in its statement, so that a mutation cannot rot.
func OpenMutated(ctx context.Context, c Config, mutations ...Mutation) (*Store, error) {
	mutants := map[string]string{}
	for _, m := range mutations {
		text, ok := mutants[m.In]
		if !ok {
			text = m.In
		}
		if !strings.Contains(text, m.Guard) {
			panic(fmt.Sprintf("guard %q is not in %s", m.Guard, text))
		}
		mutants[m.In] = strings.ReplaceAll(text, m.Guard, m.By)
	}
	return open(ctx, c, func(text string) string {
		if mutant, ok := mutants[text]; ok {
			return mutant
		}
		return text
	})
}

// ListText is the statement of a listing.
var ListText = listText

// Admit decides whether a binary may use a store.
var Admit = admit

// FaultName is how a driver error is classified.
func FaultName(err error) string {
	return map[fault]string{
		faultInternal: "internal", faultUnavailable: "unavailable",
		faultContended: "contended", faultReadOnly: "read-only",
	}[faultOf(err)]
}

// ReserveBatch commits reservations as one batch, and SettleBatch owners' last
// writes, as the flushers do.
func (s *Store) ReserveBatch(batch []records.Reservation) ([]records.Reserved, []error) {
	var values []records.Reserved
	var errs []error
	for _, r := range s.reserveBatch(context.Background(), s.data, batch) {
		values, errs = append(values, r.Value), append(errs, r.Err)
	}
	return values, errs
}

// FinalizeBatch commits finalizations of held records as one batch.
func (s *Store) FinalizeBatch(held []records.Record, o records.Outcome) []error {
	var errs []error
	var batch []settlement
	for _, r := range held {
		batch = append(batch, finalization(r.ID, r.Fence(), o))
	}
	for _, r := range s.settleBatch(context.Background(), s.data, batch) {
		errs = append(errs, r.Err)
	}
	return errs
}

// MaxExamined is how many rows one page of a listing looks at.
const MaxExamined = examinedRows
