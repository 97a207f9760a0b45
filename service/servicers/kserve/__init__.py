"""inference.GRPCInferenceService, the Open Inference Protocol, with the tensors of Triton's vLLM backend.

request ── tensors ──▶ InferRequest ──▶ Generator ──▶ events ── InferResponses ──▶ response
stream of requests ── Multiplexer ──▶ one task for each, which all write to one stream of responses
"""
