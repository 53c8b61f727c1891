package move

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"
)

// Job is one copy.
type Job struct {
	Identity

	Source Source
	Sink   Sink

	// Length and SHA256 are what was declared about the bytes. Nil: nothing.
	Length *int64
	SHA256 []byte
	// MaxBytes is the most that is moved. 0: no limit.
	MaxBytes int64

	// StallTimeout is how long an end may move no byte, or not answer. A stall
	// is a transient fault. Default 30 s.
	StallTimeout time.Duration
	// CommitTimeout is how long the sink may take to commit: a store that joins
	// ten thousand parts takes minutes. Default 5 min.
	CommitTimeout time.Duration
	// Retry says how transient faults are retried.
	Retry Retry

	// Resume is where to go on. Nil: begin at zero. If the ends no longer hold
	// what it says, the copy begins at zero.
	Resume *Checkpoint
	// Save stores a checkpoint; it is called when the sink has made something
	// to be resumed or taken away later, then at most every SaveEvery, and at
	// last right before the commit if the sink is a [Lander]. The bytes wait for
	// it. An error of it ends the copy. Nil: no checkpoints.
	Save func(ctx context.Context, c Checkpoint) error
	// SaveEvery defaults to 5 s. A checkpoint makes a file sink sync.
	SaveEvery time.Duration
	// Progress is told how many bytes the sink was given so far. It may fall,
	// when a copy begins again. It is called for every buffer, up to thousands
	// of times a second, and must not block. Nil: nobody wants to know.
	Progress func(total int64)

	// BeforeCommit is called when all bytes are at the sink and verified, right
	// before they get their final name: here the fence is checked. An error of
	// it ends the copy, uncommitted, and is returned as it is.
	BeforeCommit func(ctx context.Context) error
	// Keep decides, when a copy fails, whether what is at the sink stays there
	// to be resumed. Nil: never.
	Keep func(err error) bool
}

// Retry is how transient faults are retried.
type Retry struct {
	// Attempts is how many tries in a row may bring no byte that was not there
	// before. Default 6; 1 means not to retry.
	Attempts int
	// Initial and Max bound the pause between two tries, which grows by half
	// each time, ± 50 %. A source or sink that names a longer one (Retry-After)
	// gets it, up to a minute. Defaults 200 ms and 10 s.
	Initial, Max time.Duration
}

// Result is what became of a copy. It is filled in as far as it is known also
// when the copy fails.
type Result struct {
	// Bytes at the sink, those it resumed from included.
	Bytes int64
	// SHA256 of all of them. Only after success.
	SHA256 [sha256.Size]byte
	// Retries is how many times a transient fault was retried.
	Retries int
	// ResumedFrom is the offset at which Job.Resume let it go on, or 0.
	ResumedFrom int64
}

// Longest pause that an answer's Retry-After is granted.
const maxRetryAfter = time.Minute

// withDefaults returns the job with every zero setting replaced.
func (j Job) withDefaults() Job {
	orDuration(&j.StallTimeout, 30*time.Second)
	orDuration(&j.CommitTimeout, 5*time.Minute)
	orDuration(&j.SaveEvery, 5*time.Second)
	orDuration(&j.Retry.Initial, 200*time.Millisecond)
	orDuration(&j.Retry.Max, 10*time.Second)
	if j.Retry.Attempts == 0 {
		j.Retry.Attempts = 6
	}
	if j.Progress == nil {
		j.Progress = func(int64) {}
	}
	return j
}

func orDuration(d *time.Duration, or time.Duration) {
	if *d == 0 {
		*d = or
	}
}

// validate joins every fault of the job itself.
func (j Job) validate() error {
	var faults []error
	if j.Source == nil || j.Sink == nil {
		faults = append(faults, errors.New("a source and a sink are needed"))
	}
	if j.Flow == "" || j.Epoch <= 0 {
		faults = append(faults, fmt.Errorf("flow %q at epoch %d: both are needed", j.Flow, j.Epoch))
	}
	if j.Length != nil && *j.Length < 0 {
		faults = append(faults, fmt.Errorf("declared length %d is negative", *j.Length))
	}
	if j.SHA256 != nil && len(j.SHA256) != sha256.Size {
		faults = append(faults, fmt.Errorf("declared SHA-256 has %d bytes, not %d", len(j.SHA256), sha256.Size))
	}
	if j.MaxBytes < 0 || j.Retry.Attempts < 0 || min(j.StallTimeout, j.CommitTimeout, j.SaveEvery, j.Retry.Initial, j.Retry.Max) < 0 {
		faults = append(faults, errors.New("a limit or a timeout is negative"))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return nil
}
