import grpc
import pytest

from sluicegate.third_party.inference.grpc_service_pb2_grpc import GRPCInferenceServiceStub


@pytest.fixture
def kserve(channel: grpc.aio.Channel) -> GRPCInferenceServiceStub:
    return GRPCInferenceServiceStub(channel)
