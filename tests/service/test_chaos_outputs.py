"""Whatever a core sends, each call has one end and the next good output arrives."""

import asyncio
import contextlib
import logging
import random

import grpc
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from core.wire.messages import FinishReason, RequestType
from service.server import GatewayServer
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.bad_outputs import CORE_ID, addressed, bad_outputs, variants
from tests.service.fake_core import FakeCore

NUM_BATCHES = 42
BATCH_SIZE = 10
"""Each in five variants."""
SETTINGS = settings(max_examples=NUM_BATCHES, derandomize=True, database=None, phases=[Phase.generate])


def draw_batches() -> list[list[list[bytes]]]:
    batches: list[list[list[bytes]]] = []

    @SETTINGS
    @given(st.lists(bad_outputs(), min_size=BATCH_SIZE, max_size=BATCH_SIZE), st.integers(0, 2**32))
    def draw(batch: list[list[bytes]], seed: int) -> None:
        chance = random.Random(seed)
        batches.append([variant for frames in batch for variant in variants(frames, chance)])

    draw()
    return batches


class Calls:
    """Calls to a gateway, and what the core behind it knows them as."""

    def __init__(self, inference: InferenceServiceStub, core: FakeCore) -> None:
        self._inference = inference
        self._core = core
        self._num_made = 0

    async def attack(self, batch: list[list[bytes]]) -> None:
        """One stream for each of ``batch``, of which it tells, and one good call, answered right behind it."""
        # The prompt's are missed when they do not come: not by all.
        params = ({"logprobs": 2}, {"logprobs": 2, "prompt_logprobs": 1}, {})
        victims = [self._inference.GenerateStream(self._request(**params[i % 3])) for i in range(len(batch))]
        goods = [self._inference.Generate(self._request()) for _ in batch]
        victim_ids = await self._core_ids(len(batch) * 2)
        first_good = len(batch)
        for position, frames in enumerate(batch):
            self._core.send_frames(addressed(frames, victim_ids[position]))
            self._core.emit_token(victim_ids[first_good + position], ord("!"), FinishReason.LENGTH)
        for answer in await asyncio.gather(*goods):
            assert answer.outputs[0].text == "!"
        for core_id in victim_ids[:first_good]:
            self._core.emit_token(core_id, ord("!"), FinishReason.LENGTH)
        await asyncio.gather(*(end_of(victim) for victim in victims))

    def _request(self, **params: int) -> pb.GenerateRequest:
        self._num_made += 1
        return pb.GenerateRequest(request_id=f"{self._num_made:07}", text="hi", sampling_params=params)

    async def _core_ids(self, count: int) -> list[str]:
        """In the order in which the requests were made, whatever order they come in."""
        ids: list[str] = []
        while len(ids) < count:
            kind, message = await self._core.receive()
            if kind is RequestType.ADD:
                assert len(message.request_id) == len(CORE_ID)
                ids.append(message.request_id)
        return sorted(ids)


async def end_of(stream: grpc.aio.UnaryStreamCall) -> None:
    """Read ``stream`` to its end: it finishes once and is OK, or fails as an error of the engine."""
    events: list[pb.GenerateStreamResponse] = []
    with contextlib.suppress(grpc.aio.AioRpcError):
        while (event := await stream.read()) is not grpc.aio.EOF:
            events.append(event)
    finishes = [event.HasField("finished") for event in events]
    if await stream.code() is grpc.StatusCode.OK:
        assert finishes == [False] * (len(events) - 1) + [True]
    else:
        assert await stream.code() is grpc.StatusCode.INTERNAL
        assert not any(finishes)


async def test_a_gateway_survives_what_a_core_sends(
    inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer, caplog: pytest.LogCaptureFixture
) -> None:
    """2,000 bad outputs: the stream that each is about ends once, as the gateway meant it to, the call answered behind
    it has its text, and in the end no table holds anything.
    """
    caplog.set_level(logging.ERROR)
    calls, batches = Calls(inference, core), draw_batches()
    assert sum(map(len, batches)) >= 2000
    for batch in batches:
        async with asyncio.timeout(60):
            await calls.attack(batch)
    async with asyncio.timeout(20):
        await gateway.generator.wait_idle()
    assert gateway.generator.num_requests == gateway.generator.num_sequences == 0
    errors = [record.getMessage() for record in caplog.records if record.name == "service.servicers.edge"]
    assert errors
    assert [error for error in errors if "the engine failed at request" not in error] == []
