"""Which methods machines call all the time, to see how we are: nobody wants a line or a span of each."""

_SERVICES = "/grpc.health.", "/grpc.reflection.", "/grpc.channelz."
_METHODS = {
    "/vllm.grpc.engine.VllmEngine/HealthCheck",
    "/vllm.grpc.engine.VllmEngine/GetLoads",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
    "/inference.GRPCInferenceService/ModelReady",
    "/sluicegate.v1.ControlService/GetLoad",
}


def is_probe(method: str) -> bool:
    """By its whole name, as in ``/package.Service/Method``."""
    return method in _METHODS or method.startswith(_SERVICES)
