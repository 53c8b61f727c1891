package records

import (
	"errors"
	"fmt"
)

// Sentinels to branch on with [errors.Is].
var (
	// ErrFenced: the caller does not hold the record (any more). Nothing was
	// written. It is final for this fence.
	ErrFenced = errors.New("fence no longer holds")
	// ErrNotActive: the executor that asks may not: it is draining, gone,
	// fenced or was never registered. Nothing was written.
	ErrNotActive = errors.New("executor is not active")
	// ErrNotFound: no such record or executor.
	ErrNotFound = errors.New("not found")

	// ErrRefuted: a heartbeat of the suspect landed after the first failed
	// probe. It lives.
	ErrRefuted = errors.New("suspicion refuted by a heartbeat")
	// ErrLeaseHeld: the suspect's lease has not run out.
	ErrLeaseHeld = errors.New("lease has not expired")
	// ErrObserverUnfit: the observer's own link to the store is in doubt.
	ErrObserverUnfit = errors.New("observer is not fit to fence")
	// ErrBraked: as many executors were fenced within the lease as the fleet
	// may lose at once.
	ErrBraked = errors.New("fence brake holds")

	// ErrSlotTaken: another boot holds the slot; see [SlotTakenError].
	ErrSlotTaken = errors.New("slot is taken")

	// ErrUnavailable: the store could not be asked, or its answer was lost.
	// The call may have taken effect; repeat it with the same token.
	ErrUnavailable = errors.New("store unavailable")
	// ErrInvalid: the input can never be stored; see [InvalidError].
	ErrInvalid = errors.New("invalid input")
	// ErrCorrupt: what was stored cannot be read back.
	ErrCorrupt = errors.New("stored data is corrupt")
	// ErrSealed: what was stored is sealed, and cannot be opened here: its key
	// is missing, or it is not what was sealed. Nothing may be executed for it.
	ErrSealed = errors.New("stored data cannot be unsealed")

	// ErrWrongCluster: the store belongs to another cluster.
	ErrWrongCluster = errors.New("store belongs to another cluster")
	// ErrSchemaTooOld: the store needs a migration that this binary knows.
	ErrSchemaTooOld = errors.New("store schema is too old for this binary")
	// ErrBinaryTooOld: the store's schema admits only newer binaries.
	ErrBinaryTooOld = errors.New("binary is too old for the store's schema")
	// ErrForeignHost: live executors of another host use this file.
	ErrForeignHost = errors.New("store file is in use by another host")
)

// InvalidError says which input can never be stored, and why. It matches
// [ErrInvalid].
type InvalidError struct{ Field, Reason string }

func (e *InvalidError) Error() string { return e.Field + ": " + e.Reason }

// Is makes every InvalidError match ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// SealedError is what loading a record comes to of which something cannot be
// unsealed. It matches [ErrSealed].
type SealedError struct {
	Held  Held  // the rest: without body and request. It is to be looked at, and not for work
	Cause error // which value it is, and why
}

func (e *SealedError) Error() string { return e.Cause.Error() }

// Unwrap is the cause.
func (e *SealedError) Unwrap() error { return e.Cause }

// SlotTakenError carries the boot that holds a slot. It matches
// [ErrSlotTaken].
type SlotTakenError struct{ Holder Executor }

func (e *SlotTakenError) Error() string {
	return fmt.Sprintf("slot %q is held by executor %s at %s, last heartbeat %s ago",
		e.Holder.Slot, e.Holder.ID, e.Holder.URL, e.Holder.HeartbeatAge)
}

// Is makes every SlotTakenError match ErrSlotTaken.
func (e *SlotTakenError) Is(target error) bool { return target == ErrSlotTaken }

// faults collects what is wrong with an input, so that all of it is reported
// at once.
type faults []error

func (f *faults) check(ok bool, field, reason string) {
	if !ok {
		f.add(&InvalidError{Field: field, Reason: reason})
	}
}

func (f *faults) add(err error) {
	if err != nil {
		*f = append(*f, err)
	}
}

func (f faults) join() error { return errors.Join(f...) }
