package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"

	"google.golang.org/grpc"

	"sluicegate"
)

func tlsAndKey(ctx context.Context) error {
	trusting, err := sluicegate.LoadTLS(os.Getenv("SLUICEGATE_TLS_CA"), "", "")
	if err != nil {
		return err
	}
	key := sluicegate.WithAPIKey(os.Getenv("SLUICEGATE_API_KEY"))
	text, err := overTLS(ctx, trusting, key)
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	fmt.Printf("tls: \"%s\" with a key\n", text)
	_, err = overTLS(ctx, trusting)
	if err := printFailure("no key", err, true); err != nil {
		return err
	}
	_, err = overTLS(ctx, nil, key)
	return printFailure("untrusted", err, false)
}

// overTLS makes the call of the line unary on a connection of its own.
func overTLS(ctx context.Context, config *tls.Config, options ...grpc.DialOption) (string, error) {
	client, err := sluicegate.DialTLS(os.Getenv("SLUICEGATE_TLS_ADDRESS"), config, options...)
	if err != nil {
		return "", err
	}
	defer client.Close()
	response, err := client.Generate(ctx, paris())
	if err != nil {
		return "", err
	}
	return response.Outputs[0].Text, nil
}
