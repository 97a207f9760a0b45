"""Server reflection, v1 and v1alpha: the same messages under two names."""

from collections.abc import Sequence

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha._async import ReflectionServicer

V1 = "grpc.reflection.v1.ServerReflection"
V1_ALPHA = "grpc.reflection.v1alpha.ServerReflection"


def add_reflection(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Let clients ask ``server`` for the descriptors of ``services``, and of reflection itself."""
    _describe_v1()
    servicer = ReflectionServicer([*services, V1, V1_ALPHA])
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)
    # The package generates v1alpha only; v1 differs in nothing but the package name, which is not on the wire.
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(V1, {"ServerReflectionInfo": method}),))


def _describe_v1() -> None:
    """Put v1, which is listed, where it can be found too."""
    pool = descriptor_pool.Default()
    try:
        pool.FindFileContainingSymbol(V1)
    except KeyError:
        file = descriptor_pb2.FileDescriptorProto()
        reflection_pb2.DESCRIPTOR.CopyToProto(file)
        pool.AddSerializedFile(_renamed(file).SerializeToString())


def _renamed(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """The file of v1alpha as that of v1: the name of the package is in the path, the package, and its types."""
    text = text_format.MessageToString(file).replace("reflection.v1alpha", "reflection.v1")
    text = text.replace("reflection/v1alpha", "reflection/v1")
    return text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
