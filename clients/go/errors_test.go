package sluicegate

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func generate(t *testing.T, client *Client) *Error {
	t.Helper()
	_, err := client.Generate(context.Background(), FromText("Hello"))
	var failed *Error
	if !errors.As(err, &failed) {
		t.Fatalf("got %v, not an *Error", err)
	}
	return failed
}

// An invalid request's error names its reason and each violation, and is not to be retried.
func TestViolations(t *testing.T) {
	invalid, err := status.New(codes.InvalidArgument, "2 fields are wrong").WithDetails(
		&errdetails.ErrorInfo{Reason: "INVALID_REQUEST", Domain: "sluicegate"},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: "model", Description: "too long"}, {Field: "priority", Description: "too low"},
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	failed := generate(t, serve(t, &scripted{errors: []error{invalid.Err()}}))
	if failed.Code != codes.InvalidArgument || failed.Reason != "INVALID_REQUEST" || failed.RetryAfter != nil {
		t.Errorf("got %#v", failed)
	}
	if want := []Violation{{"model", "too long"}, {"priority", "too low"}}; !reflect.DeepEqual(failed.Violations, want) {
		t.Errorf("got %v, want %v", failed.Violations, want)
	}
	if want := "INVALID_ARGUMENT INVALID_REQUEST: 2 fields are wrong"; failed.Error() != want {
		t.Errorf("got %q, want %q", failed, want)
	}
}

// RetryInfo's delay is RetryAfter; RetryInfo without a delay, or with one that has passed, is zero.
func TestRetryAfter(t *testing.T) {
	client := serve(t, &scripted{errors: []error{
		queueFull(durationpb.New(1500 * time.Millisecond)), queueFull(nil), queueFull(durationpb.New(-time.Hour)),
	}})
	for _, want := range []time.Duration{1500 * time.Millisecond, 0, 0} {
		if failed := generate(t, client); failed.RetryAfter == nil || *failed.RetryAfter != want {
			t.Errorf("got %v, want %v", failed.RetryAfter, want)
		}
	}
}

// gRPC's own helpers read an *Error, and errors.Is finds the context's errors in it.
func TestErrorIsOfTheirs(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := serve(t, &scripted{}).Generate(ctx, FromText("Hello"))
	if status.Code(err) != codes.Canceled || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("a cancelled call is taken for a late one")
	}
}
