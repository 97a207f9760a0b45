package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"

	"sluicegate"
	pb "sluicegate/v1"
)

// readDeltas reads stream up to its delta number count.
func readDeltas(stream *sluicegate.Stream, count int) error {
	for count > 0 {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		if event.GetDelta() != nil {
			count--
		}
	}
	return nil
}

// ended reads what is left of stream; nil if that goes well.
func ended(stream *sluicegate.Stream) error {
	for {
		if _, err := stream.Recv(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// failure is err as what a call that fails must return.
func failure(err error) (*sluicegate.Error, error) {
	if err == nil {
		return nil, errors.New("the call went well")
	}
	var failed *sluicegate.Error
	if !errors.As(err, &failed) {
		return nil, err
	}
	return failed, nil
}

func printFailure(line string, err error, withReason bool) error {
	failed, err := failure(err)
	if err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	if withReason {
		fmt.Printf("%s: %s %s\n", line, name(failed), failed.Reason)
	} else {
		fmt.Printf("%s: %s\n", line, name(failed))
	}
	return nil
}

// name is the code as the specification of gRPC spells it; Go has its own spelling.
func name(failed *sluicegate.Error) string {
	return code.Code(failed.Code).String()
}

func reason(reason pb.FinishReason) string {
	return strings.TrimPrefix(reason.String(), "FINISH_REASON_")
}
