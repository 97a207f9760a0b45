package sluicegate

import (
	"context"
	"math/rand"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	firstBackoff   = 200 * time.Millisecond
	defaultMaxWait = 30 * time.Second
)

// Retry says how a call is tried again that the server refuses for now, with RetryInfo, or that reaches none. A stream
// is only until its first event. The zero value never tries again.
type Retry struct {
	// MaxAttempts is the most calls to make, the first one included.
	MaxAttempts int
	// MaxWait bounds each wait; a server that asks for a longer one is not waited for. 0: 30 seconds.
	MaxWait time.Duration
	// OnWait is told of each failure that will be followed by another try, and how long that waits; may be nil.
	OnWait func(failure *Error, wait time.Duration)
}

// do makes call until it goes well, fails for good, or the next try would come after the deadline of ctx.
func (r Retry) do(ctx context.Context, call func() error) error {
	for attempt := 1; ; attempt++ {
		err := call()
		failure, failed := err.(*Error)
		if !failed || attempt >= r.MaxAttempts {
			return err
		}
		wait, again := r.waitAfter(attempt, failure)
		if !again {
			return err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
			return err
		}
		if r.OnWait != nil {
			r.OnWait(failure, wait)
		}
		if err := sleep(ctx, wait); err != nil {
			return readable(err)
		}
	}
}

// waitAfter is the server's delay, and a little more. Where it gave none, or there was no server, the wait doubles, less
// up to a half. False: the call is not to be tried again.
func (r Retry) waitAfter(attempt int, failure *Error) (time.Duration, bool) {
	maxWait := r.MaxWait
	if maxWait == 0 {
		maxWait = defaultMaxWait
	}
	if asked := failure.RetryAfter; asked != nil && *asked > 0 {
		return between(*asked, *asked+*asked/10), *asked <= maxWait
	}
	backoff := maxWait
	if doublings := attempt - 1; doublings < 30 && firstBackoff<<doublings < maxWait {
		backoff = firstBackoff << doublings
	}
	return between(backoff/2, backoff), failure.RetryAfter != nil || failure.Code == codes.Unavailable
}

// between leaves the rest to chance: clients that were refused together should not come back together.
func between(least, most time.Duration) time.Duration {
	// Before Go 1.20, the source that all share gives the same numbers in every process.
	chance := rand.New(rand.NewSource(time.Now().UnixNano()))
	return least + time.Duration(chance.Float64()*float64(most-least))
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
