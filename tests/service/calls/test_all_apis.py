"""Whatever API a request comes by, it is told of in the same way."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import pytest
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from core.wire.messages import FinishReason
from sluicegate.third_party.inference.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.calls.lines import Lines
from tests.service.fake_core import FakeCore
from tests.service.servicers.kserve.requests import infer_request
from tests.service.servicers.vllm_engine.calls import asks

METADATA = (("traceparent", f"00-{'a' * 32}-{'b' * 16}-01"), ("tracestate", "vendor=1"))
Ask = Callable[[grpc.aio.Channel], Awaitable[object]]


async def multiplexed(channel: grpc.aio.Channel) -> object:
    stream = InferenceServiceStub(channel).GenerateMultiplexed(metadata=METADATA)
    await stream.write(pb.MultiplexedRequest(generate={"request_id": "r1", "text": "hi"}))
    await stream.done_writing()
    return [response async for response in stream]


async def generated(channel: grpc.aio.Channel) -> object:
    return await InferenceServiceStub(channel).Generate(
        pb.GenerateRequest(request_id="r1", text="hi"), metadata=METADATA
    )


async def asked_of_vllm_engine(channel: grpc.aio.Channel) -> object:
    return [chunk async for chunk in VllmEngineStub(channel).Generate(asks("r1"), metadata=METADATA)]


async def inferred(channel: grpc.aio.Channel) -> object:
    return await GRPCInferenceServiceStub(channel).ModelInfer(infer_request(request_id="r1"), metadata=METADATA)


async def inferred_as_stream(channel: grpc.aio.Channel) -> object:
    stream = GRPCInferenceServiceStub(channel).ModelStreamInfer(metadata=METADATA)
    await stream.write(infer_request(request_id="r1"))
    await stream.done_writing()
    return [response async for response in stream]


@pytest.mark.parametrize("ask", [generated, multiplexed, asked_of_vllm_engine, inferred, inferred_as_stream])
async def test_a_request(ask: Ask, channel: grpc.aio.Channel, core: FakeCore, lines: Lines) -> None:
    """The core is told of the trace, and a line of the log has the client's name of the request, and its tokens."""
    answer = asyncio.ensure_future(ask(channel))
    request = await core.receive_add()
    assert request.trace_headers == dict(METADATA)
    core.emit_token(request.request_id, 65, FinishReason.LENGTH)
    assert await answer
    line = await lines.next_access()
    assert line["request_id"].startswith("r1")
    assert (line["fields"]["prompt_tokens"], line["fields"]["output_tokens"]) == (2, 1)
    assert line["model"] == "bytes"
