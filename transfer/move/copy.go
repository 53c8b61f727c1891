package move

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Copy moves the bytes of j.Source to j.Sink, as the package comment promises.
// Its error is a [*Fault], or wraps what j.Save or j.BeforeCommit returned, or
// the cause of ctx's end.
func Copy(ctx context.Context, j Job) (Result, error) {
	if err := j.validate(); err != nil {
		return Result{}, err
	}
	c := &copying{job: j.withDefaults(), length: -1, saved: time.Now()}
	if j.Resume != nil {
		c.resume(*j.Resume)
	}
	if c.landed(ctx) {
		c.result.Bytes = c.offset
		return c.result, nil
	}
	err := c.run(ctx)
	c.result.Bytes = c.offset
	if err != nil {
		return c.result, fmt.Errorf("copy: %w", because(ctx, err))
	}
	return c.result, nil
}

// copying is a copy under way. Its fields change between attempts and, in one,
// only in the goroutine of Copy.
type copying struct {
	job    Job
	result Result

	part    Part   // what is being written to, nil between two
	sink    *guard // its life
	hash    hash.Hash
	offset  int64 // bytes in part and in hash
	highest int64 // the largest offset ever: beyond it is news

	length    int64 // of the source, negative if not known
	unframed  bool
	validator string

	point   *Checkpoint // where to go on when the part is lost
	saved   time.Time   // when it was last given to Save
	dirty   bool        // point is younger than that
	stored  string      // the token that was given to Save
	token   string      // what the sink has begun, for Discard
	begun   bool        // something may be left at the sink
	landing *Landing    // what this attempt is about to commit, or has

	buffers chan []byte // those that wait to be filled
}

// resume notes where an earlier copy stopped. What cannot be recognised at the
// source is not resumed, but its token still says what to take away.
func (c *copying) resume(p Checkpoint) {
	if _, err := p.hasher(); err != nil || p.Validator == "" {
		p = Checkpoint{Token: p.Token, Length: -1}
	}
	c.point, c.token, c.stored, c.begun = &p, p.Token, p.Token, true
	c.length, c.validator = p.Length, p.Validator
}

// run makes attempts until one succeeds, fails for good, or too many in a row
// brought nothing new.
func (c *copying) run(ctx context.Context) error {
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(c.job.Retry.Initial),
		backoff.WithMaxInterval(c.job.Retry.Max),
		backoff.WithMaxElapsedTime(0),
	)
	idle, before := 0, c.highest
	for {
		err := c.attempt(ctx)
		if err == nil {
			return nil
		}
		if c.highest > before {
			idle, before = 0, c.highest
			pause.Reset()
		}
		idle++
		if ctx.Err() != nil || !Transient(err) || idle >= c.job.Retry.Attempts {
			c.leave(ctx, because(ctx, err))
			return err
		}
		if err := wait(ctx, max(pause.NextBackOff(), retryAfter(err))); err != nil {
			c.leave(ctx, err)
			return err
		}
		c.result.Retries++
	}
}

// attempt goes on from wherever the copy is, up to the commit.
func (c *copying) attempt(ctx context.Context) error {
	c.landing = nil
	_, src := newGuard(ctx, AtSource, c.job.StallTimeout)
	defer src.stop()

	// A part that resumes says where, and then the source is opened there; a
	// new one wants to know the length, so the source is opened first.
	if c.part == nil && c.point != nil && c.point.Offset > 0 {
		if err := c.begin(ctx, c.point); err != nil {
			return err
		}
	}
	body, err := c.open(src)
	if err != nil {
		return err
	}
	defer body.Close()
	if c.part != nil && body.From != c.offset {
		if err := c.forget(ctx); err != nil {
			return err
		}
	}
	if c.part != nil && body.From > 0 && c.length >= 0 && body.Length != c.length {
		// Whatever its validator says, these bytes do not belong to the first ones.
		if err := c.forget(ctx); err != nil {
			return err
		}
		return transient(AtSource, ErrChanged, fmt.Errorf("%d bytes, it had %d", body.Length, c.length))
	}
	if err := c.admit(body); err != nil {
		return err
	}
	if c.part == nil {
		if err := c.begin(ctx, c.point); err != nil {
			return err
		}
	}
	if c.job.Resume != nil && c.highest == 0 {
		c.result.ResumedFrom = c.offset
	}
	c.highest = max(c.highest, c.offset)
	if err := c.pump(src, body); err != nil {
		return err
	}
	return c.finish(ctx)
}

// open opens the source where the part stands.
func (c *copying) open(src *guard) (*Body, error) {
	src.enter()
	defer src.leave()
	body, err := c.job.Source.Open(src.ctx, c.offset, c.validator)
	if err != nil {
		return nil, transient(AtSource, ErrUnavailable, because(src.ctx, err))
	}
	return body, nil
}

// admit checks what the source says about itself, before any byte is moved.
func (c *copying) admit(body *Body) error {
	declared := c.job.Length
	switch {
	case c.job.MaxBytes > 0 && body.Length > c.job.MaxBytes:
		return fatal(AtSource, ErrTooLarge, fmt.Errorf("%d bytes announced, at most %d allowed", body.Length, c.job.MaxBytes))
	case declared != nil && body.Length >= 0 && *declared != body.Length:
		return fatal(AtSource, ErrLength, fmt.Errorf("%d bytes announced, %d declared", body.Length, *declared))
	case body.Unframed && declared == nil && c.job.SHA256 == nil:
		return fatal(AtSource, ErrUnframed, nil)
	case declared != nil && c.job.MaxBytes > 0 && *declared > c.job.MaxBytes:
		return fatal(AtSource, ErrTooLarge, fmt.Errorf("%d bytes declared, at most %d allowed", *declared, c.job.MaxBytes))
	}
	c.length, c.unframed, c.validator = body.Length, body.Unframed, body.Validator
	return nil
}

// expected is the length that the bytes must have, negative if nobody said.
func (c *copying) expected() int64 {
	if c.length < 0 && c.job.Length != nil {
		return *c.job.Length
	}
	return c.length
}

// begin makes a part that goes on from p, or from zero.
func (c *copying) begin(ctx context.Context, p *Checkpoint) error {
	life, sink := newGuard(ctx, AtSink, c.job.StallTimeout)
	c.sink = sink
	c.sink.enter()
	defer c.sink.leave()
	part, err := c.job.Sink.Begin(life, Start{
		Identity: c.job.Identity, Length: c.expected(), Resume: p, Moved: c.sink.moved,
	})
	if err != nil {
		err = transient(AtSink, ErrUnavailable, because(life, err))
		c.sink.stop()
		return err
	}
	c.part, c.begun = part, true
	if c.offset = part.Offset(); c.offset == 0 {
		p = nil
	}
	if c.hash, err = p.hasher(); err != nil {
		return fatal(AtSink, ErrRefused, err)
	}
	return c.mark(ctx, true)
}

// forget takes the part away because the source cannot go on where it stands.
func (c *copying) forget(ctx context.Context) error {
	err := c.part.Abort(ctx)
	c.drop()
	c.point, c.offset, c.hash = nil, 0, sha256.New()
	if err != nil {
		return transient(AtSink, ErrUnavailable, because(ctx, err))
	}
	return nil
}

// drop forgets the part, which has been committed, aborted or kept.
func (c *copying) drop() {
	c.part = nil
	c.sink.stop()
}

// lose lets go of a part that failed; the next attempt goes on from the point.
func (c *copying) lose(err error) error {
	err = transient(AtSink, ErrUnavailable, because(c.sink.ctx, err))
	if kept := c.part.Keep(); kept != nil && !Transient(err) {
		err = errors.Join(err, kept)
	}
	c.drop()
	c.offset = 0
	if c.point != nil {
		c.offset = c.point.Offset
	}
	return err
}

// finish verifies and commits. The fence is asked last, right before.
func (c *copying) finish(ctx context.Context) error {
	sum := [sha256.Size]byte(c.hash.Sum(nil))
	if want := c.job.SHA256; want != nil && [sha256.Size]byte(want) != sum {
		return fatal(AtSource, ErrDigest, fmt.Errorf("SHA-256 is %x, %x declared", sum, want))
	}
	c.sink.enter()
	err := c.part.Seal()
	c.sink.leave()
	if err != nil {
		return c.lose(err)
	}
	if err := c.land(ctx, sum); err != nil {
		return err
	}
	if c.job.BeforeCommit != nil {
		if err := c.job.BeforeCommit(ctx); err != nil {
			return fmt.Errorf("before commit: %w", err)
		}
	}
	limited, cancel := context.WithTimeoutCause(ctx, c.job.CommitTimeout, &Fault{End: AtSink, Kind: ErrStalled, Transient: true, Err: errors.New("no answer to the commit")})
	defer cancel()
	if err := c.part.Commit(limited); err != nil {
		return c.lose(because(limited, err))
	}
	c.drop()
	c.result.SHA256 = sum
	return nil
}

// leave cleans up behind a copy that failed. It has a little time even when
// ctx has ended, since that is the usual reason to be here.
func (c *copying) leave(ctx context.Context, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	hopeless := errors.Is(err, ErrDigest) || errors.Is(err, ErrLength) || errors.Is(err, ErrTooLarge)
	keep := !hopeless && c.job.Keep != nil && c.job.Keep(err)
	// Whatever fails here fails beside the error that is being returned, and
	// the next owner's Begin takes away what is left.
	switch {
	case keep:
		c.keep(ctx)
	case c.part != nil:
		_ = c.part.Abort(ctx)
		c.drop()
	case c.begun && !errors.Is(err, ErrSuperseded):
		_ = c.job.Sink.Discard(ctx, c.job.Identity, c.token)
	}
}

// keep leaves what there is to be resumed, and saves from where, although no
// checkpoint may be due yet.
func (c *copying) keep(ctx context.Context) {
	c.saved = time.Time{}
	if c.part != nil {
		_ = c.mark(ctx, true)
	}
	if c.part != nil {
		_ = c.part.Keep()
		c.drop()
	}
	if c.job.Save != nil && c.dirty {
		_ = c.job.Save(ctx, *c.point)
	}
}

// wait pauses, unless ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

func retryAfter(err error) time.Duration {
	if f, ok := errors.AsType[*Fault](err); ok {
		return min(f.RetryAfter, maxRetryAfter)
	}
	return 0
}
