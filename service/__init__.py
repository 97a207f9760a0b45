"""The gateway: gRPC on one side, the engine core's wire on the other. No torch."""
