"""Server reflection by both names."""

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2 as pb

from service.server import GatewayServer
from service.servicers.reflection import V1, V1_ALPHA
from service.services import CONTROL, INFERENCE, KSERVE, VLLM_ENGINE
from tests.service.errors_of_calls import error_of


@pytest.mark.parametrize("name", [V1, V1_ALPHA])
@pytest.mark.parametrize("service", [INFERENCE, VLLM_ENGINE, KSERVE, CONTROL])
async def test_reflection(gateway: GatewayServer, name: str, service: str) -> None:
    """Both versions list the services of their address, and describe them."""
    address = gateway.admin_address if service == CONTROL else gateway.grpc_addresses[0]
    async with grpc.aio.insecure_channel(address) as channel:
        ask = channel.stream_stream(
            f"/{name}/ServerReflectionInfo",
            request_serializer=pb.ServerReflectionRequest.SerializeToString,
            response_deserializer=pb.ServerReflectionResponse.FromString,
        )
        requests = [
            pb.ServerReflectionRequest(list_services=""),
            pb.ServerReflectionRequest(file_containing_symbol=service),
        ]
        listed, described = [response async for response in ask(iter(requests))]
    names = {entry.name for entry in listed.list_services_response.service}
    assert {service, "grpc.health.v1.Health", V1, V1_ALPHA} <= names
    (first, *_) = described.file_descriptor_response.file_descriptor_proto
    assert descriptor_pb2.FileDescriptorProto.FromString(first).package == service.rpartition(".")[0]


async def test_undecodable_message_of_a_stream(gateway: GatewayServer) -> None:
    """Those before it are answered; it ends the stream with INVALID_ARGUMENT."""
    async with grpc.aio.insecure_channel(gateway.grpc_addresses[0]) as channel:
        ask = channel.stream_stream(f"/{V1}/ServerReflectionInfo")
        list_services = pb.ServerReflectionRequest(list_services="").SerializeToString()
        stream = ask(iter([list_services, b"\x0a\xff\xff garbage"]))
        assert INFERENCE.encode() in await stream.read()
        error = await error_of(stream.read())
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "UNDECODABLE_REQUEST")


@pytest.mark.parametrize("name", [V1, V1_ALPHA])
async def test_everything_listed_is_described(gateway: GatewayServer, name: str) -> None:
    """Reflection itself too, by both names: tools ask for the descriptor of each service that is listed."""
    async with grpc.aio.insecure_channel(gateway.grpc_addresses[0]) as channel:
        ask = channel.stream_stream(
            f"/{name}/ServerReflectionInfo",
            request_serializer=pb.ServerReflectionRequest.SerializeToString,
            response_deserializer=pb.ServerReflectionResponse.FromString,
        )
        (listed,) = [response async for response in ask(iter([pb.ServerReflectionRequest(list_services="")]))]
        names = [entry.name for entry in listed.list_services_response.service]
        questions = iter([pb.ServerReflectionRequest(file_containing_symbol=service) for service in names])
        answers = [response async for response in ask(questions)]
    for service, answer in zip(names, answers, strict=True):
        files = map(
            descriptor_pb2.FileDescriptorProto.FromString, answer.file_descriptor_response.file_descriptor_proto
        )
        assert service in {f"{file.package}.{entry.name}" for file in files for entry in file.service}, answer
