"""Server reflection, v1 and v1alpha: the same messages under two names."""

from collections.abc import Sequence

import grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha._async import ReflectionServicer

V1 = "grpc.reflection.v1.ServerReflection"
V1_ALPHA = "grpc.reflection.v1alpha.ServerReflection"


def add_reflection(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Let clients ask ``server`` for the descriptors of ``services``."""
    servicer = ReflectionServicer([*services, V1, V1_ALPHA])
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)
    # The package generates v1alpha only; v1 differs in nothing but the package name, which is not on the wire.
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(V1, {"ServerReflectionInfo": method}),))
