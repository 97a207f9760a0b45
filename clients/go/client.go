// Package sluicegate calls a Sluicegate server: text generation, whole or as it goes, tokenization and embeddings.
//
// Requests and answers are the messages of sluicegate/v1. Calls return *Error when they fail.
package sluicegate

import (
	"context"

	"google.golang.org/grpc"

	pb "sluicegate/v1"
)

// Client is a connection to a server; any number of goroutines may share it.
type Client struct {
	connection *grpc.ClientConn
	service    pb.InferenceServiceClient
	retry      Retry
}

func newClient(connection *grpc.ClientConn) *Client {
	return &Client{connection: connection, service: pb.NewInferenceServiceClient(connection)}
}

// WithRetry returns a client on the same connection whose calls are tried again as retry says.
func (c *Client) WithRetry(retry Retry) *Client {
	return &Client{connection: c.connection, service: c.service, retry: retry}
}

// Close ends the connection, and what still runs on it.
func (c *Client) Close() error {
	return c.connection.Close()
}

// Generate answers when every sequence has ended.
func (c *Client) Generate(ctx context.Context, request *pb.GenerateRequest) (*pb.GenerateResponse, error) {
	return unary(ctx, c.retry, request, c.service.Generate)
}

// GenerateStream is Generate as it goes. It returns with the first event, when the prompt has been computed. Read the
// stream to its end or close it.
func (c *Client) GenerateStream(ctx context.Context, request *pb.GenerateRequest) (*Stream, error) {
	var stream *Stream
	err := c.retry.do(ctx, func() (err error) {
		stream, err = openStream(ctx, c.service, request)
		return err
	})
	return stream, err
}

// Tokenize returns the tokens that Generate would use.
func (c *Client) Tokenize(ctx context.Context, request *pb.TokenizeRequest) (*pb.TokenizeResponse, error) {
	return unary(ctx, c.retry, request, c.service.Tokenize)
}

// Detokenize returns the text of tokens; incomplete characters become U+FFFD.
func (c *Client) Detokenize(ctx context.Context, request *pb.DetokenizeRequest) (*pb.DetokenizeResponse, error) {
	return unary(ctx, c.retry, request, c.service.Detokenize)
}

// Embed returns one vector of a text. Its error has the code Unimplemented if the model generates text.
func (c *Client) Embed(ctx context.Context, request *pb.EmbedRequest) (*pb.EmbedResponse, error) {
	return unary(ctx, c.retry, request, c.service.Embed)
}

func unary[Request, Response any](
	ctx context.Context, retry Retry, request *Request,
	method func(context.Context, *Request, ...grpc.CallOption) (*Response, error),
) (*Response, error) {
	var response *Response
	err := retry.do(ctx, func() (err error) {
		response, err = method(ctx, request)
		return readable(err)
	})
	return response, err
}
