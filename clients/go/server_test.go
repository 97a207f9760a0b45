package sluicegate

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "sluicegate/v1"
)

// scripted answers the first calls with errors, one each, and those after them well.
type scripted struct {
	pb.UnimplementedInferenceServiceServer
	errors    []error
	midStream error
	empty     bool
	calls     int
	keys      []string
}

func (s *scripted) next(ctx context.Context) error {
	call := s.calls
	s.calls++
	given, _ := metadata.FromIncomingContext(ctx)
	s.keys = given.Get("authorization")
	if call < len(s.errors) {
		return s.errors[call]
	}
	return nil
}

func (s *scripted) Generate(ctx context.Context, _ *pb.GenerateRequest) (*pb.GenerateResponse, error) {
	if err := s.next(ctx); err != nil {
		return nil, err
	}
	return &pb.GenerateResponse{Outputs: []*pb.SequenceOutput{{Text: " Paris."}}}, nil
}

func (s *scripted) GenerateStream(_ *pb.GenerateRequest, stream pb.InferenceService_GenerateStreamServer) error {
	if err := s.next(stream.Context()); err != nil {
		return err
	}
	if s.empty {
		return nil
	}
	delta := &pb.GenerateStreamResponse_Delta{Delta: &pb.Delta{Text: " Paris."}}
	if err := stream.Send(&pb.GenerateStreamResponse{Event: delta}); err != nil {
		return err
	}
	return s.midStream
}

// serve returns a client of server, on a real socket.
func serve(t *testing.T, server *scripted, options ...grpc.DialOption) *Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	running := grpc.NewServer()
	pb.RegisterInferenceServiceServer(running, server)
	go running.Serve(listener)
	t.Cleanup(running.Stop)
	client, err := Dial(listener.Addr().String(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// queueFull is what a server says that has no room now; delay nil: nor when it will have.
func queueFull(delay *durationpb.Duration) error {
	refusal, err := status.New(codes.ResourceExhausted, "the queue is full").WithDetails(
		&errdetails.ErrorInfo{Reason: "QUEUE_FULL", Domain: "sluicegate"}, &errdetails.RetryInfo{RetryDelay: delay},
	)
	if err != nil {
		panic(err)
	}
	return refusal.Err()
}

func soon() error {
	return queueFull(durationpb.New(time.Millisecond))
}
