// Command chat asks a server one question, and prints the answer as it comes.
//
//	chat [-address HOST:PORT] [-ca FILE] QUESTION...
//
// An API key is taken from SLUICEGATE_API_KEY.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"sluicegate"
	pb "sluicegate/v1"
)

func main() {
	address := flag.String("address", "127.0.0.1:50051", "the server's `HOST:PORT`")
	ca := flag.String("ca", "", "the server's authorities, a PEM `FILE`; connects with TLS")
	maxTokens := flag.Int("max-tokens", 256, "longest answer, in tokens")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	request := sluicegate.FromChat(sluicegate.User(strings.Join(flag.Args(), " ")))
	request.SamplingParams = &pb.SamplingParams{MaxTokens: proto.Int32(int32(*maxTokens))}
	if err := chat(ctx, *address, *ca, request); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func chat(ctx context.Context, address, ca string, request *pb.GenerateRequest) error {
	client, err := connect(address, ca)
	if err != nil {
		return err
	}
	defer client.Close()
	stream, err := client.WithRetry(sluicegate.Retry{MaxAttempts: 5}).GenerateStream(ctx, request)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		event, err := stream.Recv()
		if err == io.EOF {
			fmt.Println()
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Print(event.GetDelta().GetText())
	}
}

func connect(address, ca string) (*sluicegate.Client, error) {
	var options []grpc.DialOption
	if key := os.Getenv("SLUICEGATE_API_KEY"); key != "" {
		options = append(options, sluicegate.WithAPIKey(key))
	}
	if ca == "" {
		return sluicegate.Dial(address, options...)
	}
	config, err := sluicegate.LoadTLS(ca, "", "")
	if err != nil {
		return nil, err
	}
	return sluicegate.DialTLS(address, config, options...)
}
