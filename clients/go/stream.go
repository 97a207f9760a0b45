package sluicegate

import (
	"context"
	"io"

	pb "sluicegate/v1"
)

// Stream is the events of one request as they come; one goroutine may read it.
type Stream struct {
	call   pb.InferenceService_GenerateStreamClient
	cancel context.CancelFunc
	first  *pb.GenerateStreamResponse
	end    error
}

func openStream(
	ctx context.Context, service pb.InferenceServiceClient, request *pb.GenerateRequest,
) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	call, err := service.GenerateStream(ctx, request)
	if err != nil {
		cancel()
		return nil, readable(err)
	}
	stream := &Stream{call: call, cancel: cancel}
	if stream.first, err = stream.Recv(); err != nil && err != io.EOF {
		return nil, err
	}
	return stream, nil
}

// Recv waits for the next event: one of Started, Delta and Finished. It returns io.EOF after the last one, and *Error
// when the call fails or has been cancelled; so do all later calls.
func (s *Stream) Recv() (*pb.GenerateStreamResponse, error) {
	if event := s.first; event != nil {
		s.first = nil
		return event, nil
	}
	if s.end != nil {
		return nil, s.end
	}
	event, err := s.call.Recv()
	if err == nil {
		return event, nil
	}
	s.cancel()
	if s.end = err; err != io.EOF {
		s.end = readable(err)
	}
	return nil, s.end
}

// Close cancels the call, and the request in the engine. Harmless when it is over.
func (s *Stream) Close() {
	s.cancel()
}
