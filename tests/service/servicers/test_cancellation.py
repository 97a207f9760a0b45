"""Calls that their clients give up, over a real channel: the core is told, and nothing is left."""

import asyncio
import random

import grpc
import pytest

from core.wire.messages import EngineCoreOutput, FinishReason, RequestType
from service.server import GatewayServer
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.fake_core import FakeCore
from tests.service.servicers.calls import events_of, until_idle


async def test_cancelled_call_is_aborted(
    inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer
) -> None:
    """When the client cancels, the core gets an ABORT for every unfinished sequence, and the tables are empty."""
    stream = inference.GenerateStream(pb.GenerateRequest(text="hi", sampling_params={"n": 3}))
    ids = [(await core.receive_add()).request_id for _ in range(3)]
    core.emit(EngineCoreOutput(ids[0], [65]), EngineCoreOutput(ids[1], [66], finish_reason=FinishReason.LENGTH))
    assert (await anext(aiter(stream))).HasField("started")
    stream.cancel()
    assert sorted(await core.receive_abort()) == sorted([ids[0], ids[2]])
    await until_idle(gateway)


@pytest.mark.parametrize("method", ["Generate", "GenerateStream"])
async def test_deadline_is_aborted(
    inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer, method: str
) -> None:
    """When the deadline passes, the call ends DEADLINE_EXCEEDED and the core gets an ABORT."""
    call = getattr(inference, method)(pb.GenerateRequest(text="hi"), timeout=3)
    request = await core.receive_add()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await (events_of(call) if method == "GenerateStream" else call)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert await core.receive_abort() == [request.request_id]
    await until_idle(gateway)


async def live_until_last(core: FakeCore, live: set[str]) -> None:
    """Keep ``live`` to what the gateway has added and not aborted, until it adds the request called ``last``."""
    while True:
        kind, message = await core.receive()
        if kind is RequestType.ABORT:
            live.difference_update(message)
        elif message.external_req_id == "last":
            return
        else:
            live.add(message.request_id)


async def test_random_cancellations_leave_nothing(
    inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer
) -> None:
    """200 streams cancelled at random moments: each is aborted in the core, and the tables are empty."""
    rng = random.Random(1)
    live: set[str] = set()

    async def generate_for_all() -> None:
        while True:
            core.emit(*(EngineCoreOutput(request_id, [65]) for request_id in live))
            await asyncio.sleep(0)

    async def start_and_cancel() -> None:
        stream = inference.GenerateStream(pb.GenerateRequest(text="hi"))
        for _ in range(rng.randrange(6)):
            await stream.read()
        stream.cancel()

    following = asyncio.ensure_future(live_until_last(core, live))
    generating = asyncio.ensure_future(generate_for_all())
    async with asyncio.timeout(60):
        await asyncio.gather(*(start_and_cancel() for _ in range(200)))
        await until_idle(gateway)
        last = inference.Generate(pb.GenerateRequest(request_id="last", text="hi"))
        await following
    generating.cancel()
    last.cancel()
    assert not live
    await until_idle(gateway)


async def test_start_and_cancel_races_leave_nothing(
    inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer
) -> None:
    """500 calls cancelled around the moment of their submission: each ADD has its ABORT, and the tables are empty."""
    rng = random.Random(2)
    live: set[str] = set()

    async def start_and_cancel() -> None:
        call = inference.Generate(pb.GenerateRequest(text="hi"))
        for _ in range(rng.randrange(12)):
            await asyncio.sleep(0)
        call.cancel()

    following = asyncio.ensure_future(live_until_last(core, live))
    for _ in range(50):
        await asyncio.gather(*(start_and_cancel() for _ in range(10)))
    await until_idle(gateway)
    last = inference.Generate(pb.GenerateRequest(request_id="last", text="hi"))
    async with asyncio.timeout(30):
        await following
    assert not live
    last.cancel()
    await until_idle(gateway)
