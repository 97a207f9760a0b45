"""VllmEngine over a real channel, with a scripted core behind it: tokens are bytes."""

import grpc
import pytest
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub


@pytest.fixture
def engine(channel: grpc.aio.Channel) -> VllmEngineStub:
    return VllmEngineStub(channel)
