package sluicegate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	// Registers the check of health that WithRoundRobin asks for.
	_ "google.golang.org/grpc/health"
	"google.golang.org/grpc/keepalive"
)

const roundRobin = `{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": "readiness"}}`

var reconnection = backoff.Config{
	BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second,
}

// Dial makes a client of the server at target, HOST:PORT or unix:///path, without TLS. The connection is made in the
// background. options come after the library's own, and so win over them.
func Dial(target string, options ...grpc.DialOption) (*Client, error) {
	// grpc.NewClient and the package insecure are newer than the oldest gRPC that this is built with; what stands here
	// is supported throughout 1.x.
	return dial(target, append([]grpc.DialOption{grpc.WithInsecure()}, options...))
}

// DialTLS is Dial for a server with TLS. Of config nil, the server's certificate is checked by the system's authorities.
func DialTLS(target string, config *tls.Config, options ...grpc.DialOption) (*Client, error) {
	transport := grpc.WithTransportCredentials(credentials.NewTLS(config))
	return dial(target, append([]grpc.DialOption{transport}, options...))
}

// LoadTLS reads PEM files: the authorities to trust, "" for the system's, and the client's own certificate and key, ""
// where the server asks for none.
func LoadTLS(caFile, certFile, keyFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate in it", caFile)
		}
	}
	if certFile != "" || keyFile != "" {
		own, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// WithAPIKey shows key with every call.
func WithAPIKey(key string) grpc.DialOption {
	return grpc.WithPerRPCCredentials(bearer(key))
}

// WithRoundRobin spreads calls over all the servers that a dns:///HOST:PORT target names and that say they are ready.
func WithRoundRobin() grpc.DialOption {
	return grpc.WithDefaultServiceConfig(roundRobin)
}

func dial(target string, options []grpc.DialOption) (*Client, error) {
	defaults := []grpc.DialOption{
		// gRPC would send even loopback traffic through a proxy of the environment.
		grpc.WithNoProxy(),
		// Answers with log-probabilities of a long prompt pass gRPC's 4 MiB.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		// A server that is gone without a word is noticed while calls run: a stream would wait for ever.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		// A server that is started again is found soon: gRPC alone would come to try every two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnection, MinConnectTimeout: 20 * time.Second}),
	}
	connection, err := grpc.Dial(target, append(defaults, options...)...)
	if err != nil {
		return nil, err
	}
	return newClient(connection), nil
}

type bearer string

func (key bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(key)}, nil
}

// RequireTransportSecurity is false: TLS may end at a proxy beside the client.
func (key bearer) RequireTransportSecurity() bool {
	return false
}
