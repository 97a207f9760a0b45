"""vllm.grpc.engine.VllmEngine, as routers speak it: their messages here, the gateway's own terms everywhere else."""
