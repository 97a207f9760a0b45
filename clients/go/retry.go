package sluicegate

import (
	"context"
	"math/rand"
	"time"

	"google.golang.org/grpc/status"
)

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

// Retry says how a call that the server refuses for now, with RetryInfo, is tried again. A stream is only until its
// first event. The zero value never tries again.
type Retry struct {
	// MaxAttempts is the most calls to make, the first one included.
	MaxAttempts int
	// OnWait is told of each refusal that will be followed by another try, and how long that waits; may be nil.
	OnWait func(refusal *Error, wait time.Duration)
}

// do makes call until it goes well, fails for good, or the next try would come after the deadline of ctx.
func (r Retry) do(ctx context.Context, call func() error) error {
	for attempt := 1; ; attempt++ {
		err := call()
		refusal, failed := err.(*Error)
		if !failed || refusal.RetryAfter == nil || attempt >= r.MaxAttempts {
			return err
		}
		wait := waitAfter(attempt, *refusal.RetryAfter)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
			return err
		}
		if r.OnWait != nil {
			r.OnWait(refusal, wait)
		}
		if err := sleep(ctx, wait); err != nil {
			return readable(err)
		}
	}
}

// waitAfter is the server's delay. Where it gave none, the wait doubles, and part of it is random: clients that were
// refused together should not come back together.
func waitAfter(attempt int, delay time.Duration) time.Duration {
	if delay > 0 {
		return delay
	}
	backoff := maxBackoff
	if attempt < 7 { // Beyond, doubling passes the bound.
		backoff = firstBackoff << (attempt - 1)
	}
	random := rand.New(rand.NewSource(time.Now().UnixNano()))
	return backoff/2 + time.Duration(random.Int63n(int64(backoff/2)))
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
