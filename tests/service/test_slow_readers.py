"""Clients that read slowly, or not at all: what they cost is bounded, and nobody else notices."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import grpc
import pytest
from smg_grpc_proto.generated import vllm_engine_pb2
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from core.wire.messages import EngineCoreOutput, FinishReason
from service.config import GatewayConfig
from service.server import GatewayServer
from sluicegate.third_party.inference.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.control_service_pb2 import GetLoadRequest, WatchLoadRequest
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.errors_of_calls import CallError, parsed
from tests.service.fake_core import FakeCore
from tests.service.metrics.scrape import scrape_async
from tests.service.servicers.calls import Stream, events_of, until_idle
from tests.service.servicers.kserve.requests import infer_request

ONE_MESSAGE = [("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0)]
"""The window of a client that takes a message only when it reads one."""
NUM_READERS = 10
NUM_TOKENS = 4000
TOKENS = [65 + number % 26 for number in range(NUM_TOKENS)]


@pytest.fixture
async def slow(gateway: GatewayServer) -> AsyncIterator[InferenceServiceStub]:
    async with grpc.aio.insecure_channel(gateway.grpc_addresses[0], options=ONE_MESSAGE) as channel:
        yield InferenceServiceStub(channel)


async def say_all(core: FakeCore, request_ids: list[str], control: ControlServiceStub) -> None:
    """``TOKENS`` to each, until the gateway has them."""
    for token_id in TOKENS[:-1]:
        core.emit(*(EngineCoreOutput(request_id, [token_id]) for request_id in request_ids))
    core.emit(*(EngineCoreOutput(i, TOKENS[-1:], finish_reason=FinishReason.LENGTH) for i in request_ids))
    async with asyncio.timeout(60):
        while (await control.GetLoad(GetLoadRequest())).load.num_output_tokens < len(request_ids) * NUM_TOKENS:
            pass


async def test_slow_readers_cost_one_slot_each(
    slow: InferenceServiceStub, core: FakeCore, gateway: GatewayServer, control: ControlServiceStub
) -> None:
    """Ten readers that wait while 4,000 tokens come: each gets every one of them, in a handful of messages.

    What was not made while its client did not read has cost nothing: all of it is one message.
    """
    request = pb.GenerateRequest(
        text="hi", output_options={"token_ids": True}, sampling_params={"max_tokens": NUM_TOKENS, "ignore_eos": True}
    )
    streams = [slow.GenerateStream(request) for _ in range(NUM_READERS)]
    await say_all(core, [(await core.receive_add()).request_id for _ in streams], control)
    for stream in streams:
        events = await events_of(stream)
        assert [token_id for event in events for token_id in event.delta.token_ids] == TOKENS
        assert len(events) < 10
    await until_idle(gateway)


@pytest.fixture
def gateway_config(request: pytest.FixtureRequest, gateway_config: GatewayConfig) -> GatewayConfig:
    """Parametrize it with the time-out of writes."""
    timeout_s = getattr(request, "param", gateway_config.limits.write_stall_timeout_s)
    limits = replace(gateway_config.limits, write_stall_timeout_s=timeout_s)
    return replace(gateway_config, limits=limits, listen=replace(gateway_config.listen, metrics_address="127.0.0.1:0"))


impatient = pytest.mark.parametrize("gateway_config", [0.2], indirect=True)


async def end_of(stream: Stream) -> CallError:
    """The error that comes after what was written before."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await events_of(stream)
    return parsed(raised.value)


@impatient
async def test_reader_that_never_reads_is_cut(
    slow: InferenceServiceStub, core: FakeCore, gateway: GatewayServer, inference: InferenceServiceStub
) -> None:
    """Its request is aborted in the core and leaves the tables while it still does not read; others go on.

    If it ever reads, it gets what was written, and then ABORTED.
    """
    stalled = slow.GenerateStream(pb.GenerateRequest(text="hi"))
    request_id = (await core.receive_add()).request_id
    other = inference.GenerateStream(pb.GenerateRequest(text="ho"))
    other_id = (await core.receive_add()).request_id
    for token_id in TOKENS[:20]:
        core.emit_token(request_id, token_id)
    assert await core.receive_abort() == [request_id]
    core.emit_token(other_id, 65, FinishReason.LENGTH)
    assert (await events_of(other))[-1].finished.finish_reason == pb.FINISH_REASON_LENGTH
    await until_idle(gateway)
    error = await end_of(stalled)
    assert (error.code, error.reason) == (grpc.StatusCode.ABORTED, "WRITE_STALLED")
    assert error.retry_after_s is None


@impatient
async def test_reader_that_waits_for_tokens_is_not_cut(
    slow: InferenceServiceStub, core: FakeCore, control: ControlServiceStub
) -> None:
    """However long nothing comes: only a write that does not end counts."""
    stream = slow.GenerateStream(pb.GenerateRequest(text="hi"))
    request_id = (await core.receive_add()).request_id
    watching = control.WatchLoad(WatchLoadRequest(interval={"nanos": 100_000_000}))
    for _ in range(6):
        await watching.read()
    core.emit_token(request_id, 65, FinishReason.LENGTH)
    assert (await events_of(stream))[-1].finished.finish_reason == pb.FINISH_REASON_LENGTH


@impatient
async def test_every_stream_is_watched(gateway: GatewayServer) -> None:
    """Not only generation: a watch of the load that nobody reads is cut, too."""
    async with grpc.aio.insecure_channel(gateway.admin_address, options=ONE_MESSAGE) as channel:
        stream = ControlServiceStub(channel).WatchLoad(WatchLoadRequest(interval={"nanos": 100_000_000}))
        async with asyncio.timeout(30):
            while not (await scrape_async(gateway.metrics_address)).value("sluicegate:stalled_streams_total"):
                pass
        assert (await end_of(stream)).reason == "WRITE_STALLED"


async def multiplexed(channel: grpc.aio.Channel) -> Stream:
    stream = InferenceServiceStub(channel).GenerateMultiplexed()
    await stream.write(pb.MultiplexedRequest(generate=pb.GenerateRequest(request_id="r", text="hi")))
    return stream


async def of_triton(channel: grpc.aio.Channel) -> Stream:
    stream = GRPCInferenceServiceStub(channel).ModelStreamInfer()
    await stream.write(infer_request(stream=True))
    return stream


async def of_routers(channel: grpc.aio.Channel) -> Stream:
    prompt = vllm_engine_pb2.TokenizedInput(input_ids=[104, 105])
    request = vllm_engine_pb2.GenerateRequest(request_id="r", tokenized=prompt, stream=True)
    return VllmEngineStub(channel).Generate(request)


@impatient
@pytest.mark.parametrize("start", [multiplexed, of_triton, of_routers])
async def test_streams_of_other_apis_are_cut_too(
    core: FakeCore, gateway: GatewayServer, start: Callable[[grpc.aio.Channel], Awaitable[Stream]]
) -> None:
    """Their requests are aborted in the core, and leave the tables, while nobody reads."""
    async with grpc.aio.insecure_channel(gateway.grpc_addresses[0], options=ONE_MESSAGE) as channel:
        stream = await start(channel)
        request_id = (await core.receive_add()).request_id
        emitting = asyncio.ensure_future(emit_for_ever(core, request_id))
        assert await core.receive_abort() == [request_id]
        emitting.cancel()
        await until_idle(gateway)
        assert (await end_of(stream)).code is grpc.StatusCode.ABORTED


async def emit_for_ever(core: FakeCore, request_id: str) -> None:
    """As long as the test wants: each message of the core makes one for the client, until that does not read."""
    while True:
        core.emit_token(request_id, 65)
        await asyncio.sleep(0.01)
