package sluicegate

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Violation is one thing wrong with a request.
type Violation struct {
	// Field is the path of the field, as the proto spells it, such as sampling_params.top_p.
	Field string
	// Description says what is wrong with it, with the bound.
	Description string
}

// Error is a call that failed.
type Error struct {
	Code    codes.Code
	Message string
	// Reason is the server's name for the fault; "" when it is not the server that answers.
	Reason string
	// Violations says what is wrong with the request.
	Violations []Violation
	// RetryAfter is how long to wait before the next try, nil where the server does not say that the same call may go
	// well later. 0: it does, but not when.
	RetryAfter *time.Duration

	status *status.Status
}

func (e *Error) Error() string {
	name := code.Code(e.Code).String()
	if e.Reason != "" && e.Reason != name {
		name += " " + e.Reason
	}
	return name + ": " + e.Message
}

// Is makes errors.Is find the errors of the context that ended the call.
func (e *Error) Is(target error) bool {
	switch target {
	case context.Canceled:
		return e.Code == codes.Canceled
	case context.DeadlineExceeded:
		return e.Code == codes.DeadlineExceeded
	}
	return false
}

// GRPCStatus is for status.Code and status.FromError.
func (e *Error) GRPCStatus() *status.Status {
	return e.status
}

// readable turns gRPC's errors into *Error.
func readable(err error) error {
	if err == nil {
		return nil
	}
	from := status.Convert(err)
	e := &Error{Code: from.Code(), Message: from.Message(), status: from}
	for _, detail := range from.Details() {
		e.take(detail)
	}
	return e
}

func (e *Error) take(detail interface{}) {
	switch detail := detail.(type) {
	case *errdetails.ErrorInfo:
		e.Reason = detail.Reason
	case *errdetails.BadRequest:
		for _, each := range detail.FieldViolations {
			e.Violations = append(e.Violations, Violation{each.Field, each.Description})
		}
	case *errdetails.RetryInfo:
		delay := detail.RetryDelay.AsDuration()
		if delay < 0 {
			delay = 0
		}
		e.RetryAfter = &delay
	}
}
