// Command conformance makes the calls that ../../../conformance/README.md lists and prints what comes of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"sluicegate"
	pb "sluicegate/v1"
)

// A server that hangs fails the run instead of holding it up.
const limit = 120 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	client, err := sluicegate.Dial(os.Getenv("SLUICEGATE_ADDRESS"))
	if err != nil {
		return err
	}
	defer client.Close()
	for _, check := range []func(context.Context, *sluicegate.Client) error{
		unary, tokens, stream, overloadAndRetry, cancelled, deadline, invalid, unknownModel,
	} {
		if err := check(ctx, client); err != nil {
			return err
		}
	}
	return tlsAndKey(ctx)
}

// paris is the request of the line unary.
func paris() *pb.GenerateRequest {
	request := sluicegate.FromText("The capital of France is")
	request.SamplingParams = &pb.SamplingParams{Temperature: proto.Float64(0), MaxTokens: proto.Int32(2)}
	return request
}

// endless is a request that runs for a while.
func endless() *pb.GenerateRequest {
	request := sluicegate.FromText("The capital of France is")
	request.SamplingParams = &pb.SamplingParams{IgnoreEos: proto.Bool(true), MaxTokens: proto.Int32(2000)}
	return request
}

func unary(ctx context.Context, client *sluicegate.Client) error {
	response, err := client.Generate(ctx, paris())
	if err != nil {
		return fmt.Errorf("unary: %w", err)
	}
	output, usage := response.Outputs[0], response.Usage
	fmt.Printf("unary: \"%s\" %s, %d prompt tokens, %d output tokens\n",
		output.Text, reason(output.FinishReason), usage.NumPromptTokens, usage.NumOutputTokens)
	return nil
}

func tokens(ctx context.Context, client *sluicegate.Client) error {
	const text = "Grüße, 世界 🙂"
	tokenized, err := client.Tokenize(ctx, &pb.TokenizeRequest{
		Input: &pb.TokenizeRequest_Text{Text: text}, AddSpecialTokens: proto.Bool(false),
	})
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	back, err := client.Detokenize(ctx, &pb.DetokenizeRequest{TokenIds: tokenized.TokenIds})
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	if back.Text != text {
		return fmt.Errorf("tokens: %q comes back as %q", text, back.Text)
	}
	fmt.Printf("tokens: \"%s\" comes back\n", text)
	return nil
}

func stream(ctx context.Context, client *sluicegate.Client) error {
	request := sluicegate.FromChat(sluicegate.User("What is the capital of France? Answer in one sentence."))
	request.SamplingParams = &pb.SamplingParams{Temperature: proto.Float64(0), MaxTokens: proto.Int32(32)}
	stream, err := client.GenerateStream(ctx, request)
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	defer stream.Close()
	var text strings.Builder
	var promptTokens uint32
	for {
		event, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		switch event := event.Event.(type) {
		case *pb.GenerateStreamResponse_Started:
			promptTokens = event.Started.NumPromptTokens
		case *pb.GenerateStreamResponse_Delta:
			text.WriteString(event.Delta.Text)
		case *pb.GenerateStreamResponse_Finished:
			fmt.Printf("stream: %d prompt tokens, \"%s\", %s, %d output tokens\n", promptTokens, text.String(),
				reason(event.Finished.FinishReason), event.Finished.Usage.NumOutputTokens)
			return ended(stream)
		}
	}
}

func overloadAndRetry(ctx context.Context, client *sluicegate.Client) error {
	request := sluicegate.FromText("The capital of France is")
	request.SamplingParams = &pb.SamplingParams{
		N: proto.Int32(4), Temperature: proto.Float64(1), IgnoreEos: proto.Bool(true), MaxTokens: proto.Int32(300),
	}
	busy, err := client.GenerateStream(ctx, request)
	if err != nil {
		return fmt.Errorf("overload: %w", err)
	}
	defer busy.Close()
	if err := readDeltas(busy, 1); err != nil {
		return fmt.Errorf("overload: %w", err)
	}
	if err := refused(ctx, client); err != nil {
		return fmt.Errorf("overload: %w", err)
	}
	if err := retried(ctx, client); err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	return ended(busy)
}

func refused(ctx context.Context, client *sluicegate.Client) error {
	_, err := client.Generate(ctx, paris())
	refusal, err := failure(err)
	if err != nil {
		return err
	}
	if refusal.RetryAfter == nil {
		return fmt.Errorf("refused without RetryInfo: %w", refusal)
	}
	fmt.Printf("overload: %s %s, to be retried\n", name(refusal), refusal.Reason)
	return nil
}

func retried(ctx context.Context, client *sluicegate.Client) error {
	refusals := 0
	patient := client.WithRetry(sluicegate.Retry{
		MaxAttempts: 100,
		OnWait:      func(*sluicegate.Error, time.Duration) { refusals++ },
	})
	response, err := patient.Generate(ctx, paris())
	if err != nil {
		return err
	}
	if refusals == 0 {
		return errors.New("answered without a refusal")
	}
	fmt.Printf("retry: \"%s\" after a refusal\n", response.Outputs[0].Text)
	return nil
}

func cancelled(ctx context.Context, client *sluicegate.Client) error {
	const enough = 3
	stream, err := client.GenerateStream(ctx, endless())
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	if err := readDeltas(stream, enough); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	stream.Close()
	failed, err := failure(ended(stream))
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	fmt.Printf("cancel: %s after %d deltas\n", name(failed), enough)
	return nil
}

func deadline(ctx context.Context, client *sluicegate.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err := client.Generate(ctx, endless())
	return printFailure("deadline", err, false)
}

func invalid(ctx context.Context, client *sluicegate.Client) error {
	request := sluicegate.FromText("The capital of France is")
	request.SamplingParams = &pb.SamplingParams{TopP: proto.Float64(3), MaxTokens: proto.Int32(0)}
	_, err := client.Generate(ctx, request)
	if err := printFailure("invalid", err, true); err != nil {
		return err
	}
	failed, _ := failure(err)
	for _, violation := range failed.Violations {
		fmt.Printf("invalid: %s: %s\n", violation.Field, violation.Description)
	}
	return nil
}

func unknownModel(ctx context.Context, client *sluicegate.Client) error {
	request := paris()
	request.Model = "no-such-model"
	_, err := client.Generate(ctx, request)
	return printFailure("unknown model", err, true)
}
