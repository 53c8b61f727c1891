package takeover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/probate-dev/probate/records"
)

// definite repeats a call until the store has answered it, or ctx ends. Nearly
// always the first one is answered, and nothing is set up to repeat it.
func definite[T any](ctx context.Context, n *Node, call func(ctx context.Context) (T, error)) (T, error) {
	got, err := call(ctx)
	if err == nil {
		return got, nil
	}
	counted := true // the first call, by the first round below
	return backoff.RetryWithData(func() (T, error) {
		if !counted {
			got, err = call(ctx)
		}
		counted = false
		if err != nil && !uncertain(err) {
			return got, backoff.Permanent(err)
		}
		return got, err
	}, backoff.WithContext(n.pace(), ctx))
}

// uncertain reports whether a call with this error may have taken effect.
func uncertain(err error) bool {
	return errors.Is(err, records.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, ErrStopped)
}

func asUnavailable(err error) error {
	if errors.Is(err, records.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", records.ErrUnavailable, err)
}

// jitter is d, more or less by up to the given part of it.
func jitter(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 + part*(2*rand.Float64()-1)))
}

// pace is how fast a store that cannot be reached is asked again: from a
// tenth of a heartbeat up to one, without end.
func (n *Node) pace() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(n.config.Heartbeat/10),
		backoff.WithMaxInterval(n.config.Heartbeat),
		backoff.WithMaxElapsedTime(0),
	)
}

// sleep waits for d, or returns ctx's cause.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
