package sluicegate

import (
	"context"
	"net"
	"reflect"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "sluicegate/v1"
)

// WithAPIKey shows the key.
func TestAPIKey(t *testing.T) {
	server := &scripted{}
	if _, err := serve(t, server, WithAPIKey("secret")).Generate(context.Background(), FromText("Hello")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"Bearer secret"}; !reflect.DeepEqual(server.keys, want) {
		t.Errorf("got %v, want %v", server.keys, want)
	}
}

// WithRoundRobin sends no call to a server that says it is not ready.
func TestRoundRobinChecksHealth(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, said := grpc.NewServer(), health.NewServer()
	pb.RegisterInferenceServiceServer(server, &scripted{})
	grpc_health_v1.RegisterHealthServer(server, said)
	go server.Serve(listener)
	defer server.Stop()
	for answer, want := range map[grpc_health_v1.HealthCheckResponse_ServingStatus]codes.Code{
		grpc_health_v1.HealthCheckResponse_SERVING:     codes.OK,
		grpc_health_v1.HealthCheckResponse_NOT_SERVING: codes.Unavailable,
	} {
		said.SetServingStatus("readiness", answer)
		client, err := Dial("dns:///"+listener.Addr().String(), WithRoundRobin())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Generate(context.Background(), FromText("Hello")); status.Code(err) != want {
			t.Errorf("%v: got %v, want %v", answer, err, want)
		}
		client.Close()
	}
}

// LoadTLS names the file that holds no certificate.
func TestLoadTLSWithoutCertificate(t *testing.T) {
	if _, err := LoadTLS("connect.go", "", ""); err == nil || err.Error() != "connect.go: no certificate in it" {
		t.Errorf("got %v", err)
	}
}
