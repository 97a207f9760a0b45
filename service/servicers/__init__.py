"""The gRPC services: each turns its API's messages into the gateway's terms and back."""
