// Command chat talks with the model: each line of standard input is a question, whose answer is written as it comes.
//
// SLUICEGATE_ADDRESS says where the server is, SLUICEGATE_TLS_CA and SLUICEGATE_API_KEY how to get in.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"sluicegate"
	pb "sluicegate/v1"
)

func main() {
	if err := talk(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "chat:", err)
		os.Exit(1)
	}
}

func talk(ctx context.Context) error {
	client, err := connect()
	if err != nil {
		return err
	}
	defer client.Close()
	var messages []*pb.ChatMessage
	questions := bufio.NewScanner(os.Stdin)
	for fmt.Print("> "); questions.Scan(); fmt.Print("\n> ") {
		messages = append(messages, sluicegate.User(questions.Text()))
		text, err := answer(ctx, client, messages)
		if err != nil {
			return err
		}
		messages = append(messages, &pb.ChatMessage{Role: "assistant", Content: text})
	}
	fmt.Println()
	return questions.Err()
}

func answer(ctx context.Context, client *sluicegate.Client, messages []*pb.ChatMessage) (string, error) {
	request := sluicegate.FromChat(messages...)
	request.SamplingParams = &pb.SamplingParams{MaxTokens: proto.Int32(512)}
	stream, err := client.WithRetry(sluicegate.Retry{MaxAttempts: 5}).GenerateStream(ctx, request)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	var text string
	for {
		event, err := stream.Recv()
		if err == io.EOF {
			return text, nil
		}
		if err != nil {
			return "", err
		}
		fmt.Print(event.GetDelta().GetText())
		text += event.GetDelta().GetText()
	}
}

func connect() (*sluicegate.Client, error) {
	address := os.Getenv("SLUICEGATE_ADDRESS")
	if address == "" {
		address = "127.0.0.1:50051"
	}
	var options []grpc.DialOption
	if key := os.Getenv("SLUICEGATE_API_KEY"); key != "" {
		options = append(options, sluicegate.WithAPIKey(key))
	}
	ca := os.Getenv("SLUICEGATE_TLS_CA")
	if ca == "" {
		return sluicegate.Dial(address, options...)
	}
	config, err := sluicegate.LoadTLS(ca, "", "")
	if err != nil {
		return nil, err
	}
	return sluicegate.DialTLS(address, config, options...)
}
