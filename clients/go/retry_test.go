package sluicegate

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A call that is refused is made again, after the server's delay, until it is answered.
func TestRetryUntilAnswered(t *testing.T) {
	server := &scripted{errors: []error{soon(), soon()}}
	var waits []time.Duration
	client := serve(t, server).WithRetry(Retry{
		MaxAttempts: 3, OnWait: func(_ *Error, wait time.Duration) { waits = append(waits, wait) },
	})
	response, err := client.Generate(context.Background(), FromText("Hello"))
	if err != nil {
		t.Fatal(err)
	}
	if response.Outputs[0].Text != " Paris." || server.calls != 3 {
		t.Errorf("got %v after %d calls", response, server.calls)
	}
	if len(waits) != 2 {
		t.Errorf("waited %v", waits)
	}
	for _, wait := range waits {
		if wait < time.Millisecond || wait > 1100*time.Microsecond {
			t.Errorf("waited %v", waits)
		}
	}
}

// No more calls than MaxAttempts are made, and without WithRetry one.
func TestRetryAttempts(t *testing.T) {
	for attempts, calls := range map[int]int{0: 1, 2: 2} {
		server := &scripted{errors: []error{soon(), soon(), soon(), soon()}}
		failed := generate(t, serve(t, server).WithRetry(Retry{MaxAttempts: attempts}))
		if server.calls != calls || failed.Reason != "QUEUE_FULL" {
			t.Errorf("%d attempts: %d calls, then %v", attempts, server.calls, failed)
		}
	}
}

// Without RetryInfo, a call is tried again only if it may not have reached a server.
func TestRetryWithoutRetryInfo(t *testing.T) {
	for code, calls := range map[codes.Code]int{codes.Internal: 1, codes.ResourceExhausted: 1, codes.Unavailable: 2} {
		server := &scripted{errors: []error{status.Error(code, "gone"), status.Error(code, "gone")}}
		generate(t, serve(t, server).WithRetry(Retry{MaxAttempts: 2, MaxWait: time.Millisecond}))
		if server.calls != calls {
			t.Errorf("%v: %d calls", code, server.calls)
		}
	}
}

// A server that asks for a longer wait than MaxWait is not waited for.
func TestRetryMaxWait(t *testing.T) {
	for _, delay := range []*durationpb.Duration{{Seconds: 31}, {Seconds: math.MaxInt64, Nanos: math.MaxInt32}} {
		server := &scripted{errors: []error{queueFull(delay)}}
		failed := generate(t, serve(t, server).WithRetry(Retry{MaxAttempts: 5}))
		if server.calls != 1 || failed.Reason != "QUEUE_FULL" {
			t.Errorf("%v: %d calls, %v", delay, server.calls, failed)
		}
	}
}

// A wait that would outlast the deadline is not begun: the refusal is the error.
func TestRetryWithinDeadline(t *testing.T) {
	client := serve(t, &scripted{errors: []error{queueFull(durationpb.New(time.Hour))}}).WithRetry(Retry{MaxAttempts: 5})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := client.Generate(ctx, FromText("Hello")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}

// Cancelling the context ends a wait.
func TestCancelWhileWaiting(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	client := serve(t, &scripted{errors: []error{queueFull(durationpb.New(time.Hour))}}).WithRetry(Retry{
		MaxAttempts: 5, MaxWait: time.Hour, OnWait: func(*Error, time.Duration) { cancel() },
	})
	if _, err := client.Generate(ctx, FromText("Hello")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A stream is retried until its first event has come.
func TestRetryStream(t *testing.T) {
	server := &scripted{errors: []error{soon()}}
	stream, err := serve(t, server).WithRetry(Retry{MaxAttempts: 2}).GenerateStream(context.Background(), FromText("Hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	event, err := stream.Recv()
	if err != nil || event.GetDelta().GetText() != " Paris." {
		t.Fatalf("got %v, %v", event, err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("got %v, want the end", err)
	}
}

// A stream that fails after its first event is not retried, even with RetryInfo.
func TestNoRetryMidStream(t *testing.T) {
	server := &scripted{midStream: soon()}
	stream, err := serve(t, server).WithRetry(Retry{MaxAttempts: 5}).GenerateStream(context.Background(), FromText("Hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	stream.Recv()
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted || server.calls != 1 {
		t.Errorf("got %v after %d calls", err, server.calls)
	}
}

// Where the server gives no delay, waits double up to MaxWait, and at most half of one is random.
func TestBackoff(t *testing.T) {
	unknown := &Error{RetryAfter: new(time.Duration)}
	for attempt, most := range map[int]time.Duration{
		1: 200 * time.Millisecond, 2: 400 * time.Millisecond, 6: 6400 * time.Millisecond, 9: 30 * time.Second, 999: 30 * time.Second,
	} {
		if wait, again := (Retry{}).waitAfter(attempt, unknown); !again || wait < most/2 || wait > most {
			t.Errorf("attempt %d waits %v, want %v to %v", attempt, wait, most/2, most)
		}
	}
}

// A stream without events has ended, again and again.
func TestEmptyStream(t *testing.T) {
	stream, err := serve(t, &scripted{empty: true}).GenerateStream(context.Background(), FromText("Hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for i := 0; i < 2; i++ {
		if _, err := stream.Recv(); err != io.EOF {
			t.Errorf("got %v, want the end", err)
		}
	}
}
