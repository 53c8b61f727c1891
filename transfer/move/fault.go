package move

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kinds of faults. Every error of [Copy] is a [*Fault] of one of these, except
// what the caller's own context and functions returned.
var (
	// ErrNotFound: the source, or the bucket or folder of the sink, is not
	// there.
	ErrNotFound = errors.New("not found")
	// ErrRefused: an end said no: a 4xx, a missing permission, an answer that
	// makes no sense.
	ErrRefused = errors.New("refused")
	// ErrUnavailable: an end failed in a way that may pass: I/O, 408, 425, 429,
	// 5xx, a connection that broke.
	ErrUnavailable = errors.New("unavailable")
	// ErrStalled: no byte moved for [Job.StallTimeout], or a commit was not
	// answered within [Job.CommitTimeout].
	ErrStalled = errors.New("stalled")
	// ErrTooLarge: the source has more than [Job.MaxBytes].
	ErrTooLarge = errors.New("larger than allowed")
	// ErrLength: the source has another length than was declared, or than it
	// had itself announced.
	ErrLength = errors.New("length differs")
	// ErrDigest: the bytes have another SHA-256 than was declared.
	ErrDigest = errors.New("digest differs")
	// ErrChanged: the source was written to while it was read.
	ErrChanged = errors.New("source changed")
	// ErrUnframed: the source ends by hanging up, which looks the same as a
	// crash, and neither length nor digest was declared.
	ErrUnframed = errors.New("end of source cannot be told from a broken connection")
	// ErrEncoded: the source sent compressed bytes although it was asked not
	// to.
	ErrEncoded = errors.New("encoded content")
	// ErrRedirect: an end points elsewhere, and it is not allowed to.
	ErrRedirect = errors.New("redirect not followed")
	// ErrAddress: the address of an end is not one that may be dialled.
	ErrAddress = errors.New("address not allowed")
	// ErrOutsideRoot: the path leaves the root, by "..", by being absolute, or
	// through a symlink.
	ErrOutsideRoot = errors.New("path outside root")
	// ErrNotRegular: the path is a folder, a device, a pipe.
	ErrNotRegular = errors.New("not a regular file")
	// ErrSinkFull: no space left, over quota, or larger than a file may be.
	ErrSinkFull = errors.New("sink full")
	// ErrSuperseded: a newer epoch of the flow writes to the sink.
	ErrSuperseded = errors.New("superseded by a newer epoch")
	// ErrUncertain: the receiver had the whole request and did not answer, and
	// to send it again might deliver it twice.
	ErrUncertain = errors.New("delivered, but outcome unknown")
)

// End is one of the two ends of a copy.
type End string

// The ends.
const (
	AtSource End = "source"
	AtSink   End = "sink"
)

// Fault is what went wrong, where, and whether it may pass.
type Fault struct {
	End  End
	Kind error // one of the kinds above
	// Transient: worth another try. After the last try the fault that ended it
	// is returned as it was.
	Transient bool
	// Status of an HTTP answer, or 0.
	Status int
	// RetryAfter is what the other side asked for, or 0.
	RetryAfter time.Duration
	// Err says more. May be nil.
	Err error
}

// Error implements error.
func (f *Fault) Error() string {
	s := fmt.Sprintf("%s: %v", f.End, f.Kind)
	if f.Status != 0 {
		s += fmt.Sprintf(" (status %d)", f.Status)
	}
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	return s
}

// Unwrap lets errors.Is find both the kind and the cause.
func (f *Fault) Unwrap() []error {
	if f.Err == nil {
		return []error{f.Kind}
	}
	return []error{f.Kind, f.Err}
}

// Transient reports whether the fault in err may pass, so that a later try,
// perhaps by another node, makes sense.
func Transient(err error) bool {
	f, ok := errors.AsType[*Fault](err)
	return ok && f.Transient
}

// fatal and transient make faults; an error that is one already stays as it is.
func fatal(at End, kind, err error) error { return fault(at, kind, false, err) }

func transient(at End, kind, err error) error { return fault(at, kind, true, err) }

func fault(at End, kind error, passes bool, err error) error {
	if _, ok := errors.AsType[*Fault](err); ok {
		return err
	}
	return &Fault{End: at, Kind: kind, Transient: passes, Err: err}
}

// because replaces an error that only says that ctx has ended by why it has.
// What is wrong for good stays so, whatever ended besides.
func because(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if f, ok := errors.AsType[*Fault](err); ok && !f.Transient {
		return err
	}
	return context.Cause(ctx)
}
