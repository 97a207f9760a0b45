"""Cores that die under a real model: no stream is lost, and none is another than it would have been."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.e2e.server import Server, serving

NUM_KILLS = 5
NUM_TOKENS = 24
SCHEMA = (
    '{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["age"]}'
)
PROMPTS = ["Once upon a time", "The capital of France is", "def fibonacci(n):", "My favourite colour is"]
ASKED: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.9, "seed": 7, "top_p": 0.95},
    {"temperature": 0, "logprobs": 2, "prompt_logprobs": 1},
    {"temperature": 0.8, "seed": 1, "presence_penalty": 0.6, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
    {"temperature": 0, "stop": ["\n\n", "king", " and a"], "min_tokens": 5},
    {"temperature": 1.1, "seed": 3, "logprobs": 1, "stop": [" the "], "include_stop_str_in_output": True},
    {"temperature": 0, "json_schema": SCHEMA},
    {"temperature": 1.0, "seed": 11, "json_schema": SCHEMA, "logprobs": 0},
]
"""Eight kinds of four requests each."""


def requests() -> Iterator[pb.GenerateRequest]:
    for prompt in PROMPTS:
        for asked in ASKED:
            params = {"max_tokens": NUM_TOKENS, "ignore_eos": "json_schema" not in asked, **asked}
            yield pb.GenerateRequest(text=prompt, sampling_params=params, output_options={"token_ids": True})


class Reader:
    """What a stream has given, and the longest time for which it gave nothing."""

    def __init__(self, stub: InferenceServiceStub, request: pb.GenerateRequest) -> None:
        self._stream = stub.GenerateStream(request)
        self.came = asyncio.Event()
        """Something, since it was cleared."""
        self.token_ids: list[int] = []
        self.text = ""
        self.num_scored = 0
        self.scored_prompts: list[int] = []
        self.finished = pb.Finished()
        self.longest_pause_s = 0.0
        self.has_ended = False

    async def run(self) -> "Reader":
        since = time.monotonic()
        while (event := await self._stream.read()) is not grpc.aio.EOF:
            self.longest_pause_s, since = max(self.longest_pause_s, time.monotonic() - since), time.monotonic()
            self.came.set()
            match event.WhichOneof("event"):
                case "started":
                    self.scored_prompts.append(len(event.started.prompt_logprobs))
                case "delta":
                    self.token_ids += event.delta.token_ids
                    self.text += event.delta.text
                    self.num_scored += len(event.delta.logprobs)
                case "finished":
                    self.finished = event.finished
        self.has_ended = True
        self.came.set()
        return self

    @property
    def answer(self) -> tuple[object, ...]:
        finish = self.finished.finish_reason, self.finished.stop_string, self.finished.usage.num_output_tokens
        return self.token_ids, self.text, self.num_scored, self.scored_prompts, finish


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """With the flags that a test is parametrized with."""
    with serving(*getattr(request, "param", ())) as server:
        yield server


@pytest.fixture
async def channel(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> InferenceServiceStub:
    return InferenceServiceStub(channel)


def core_of(server: Server) -> psutil.Process:
    """The one that was started last."""
    return psutil.Process(int(re.findall(r"core started, pid (\d+)", server.process.log)[-1]))


async def until_each_has_more(readers: Sequence[Reader]) -> None:
    """Return when every stream that has not ended has got something since the call."""
    for reader in readers:
        if not reader.has_ended:
            reader.came.clear()
    for reader in readers:
        await reader.came.wait()


async def until_status(watch: Any, status: int) -> None:
    while (await watch.read()).status != status:
        pass


async def test_five_dead_cores_lose_nothing(
    server: Server, channel: grpc.aio.Channel, stub: InferenceServiceStub
) -> None:
    """32 streams, greedy and seeded, with stop strings, scores, penalties and forms, are as if nothing had happened."""
    undisturbed = await asyncio.gather(*(Reader(stub, request).run() for request in requests()))
    readers = [Reader(stub, request) for request in requests()]
    watch = HealthStub(channel).Watch(HealthCheckRequest(service="readiness"))
    async with asyncio.timeout(240), asyncio.TaskGroup() as group:
        for reader in readers:
            group.create_task(reader.run())
        for _ in range(NUM_KILLS):
            await until_status(watch, HealthCheckResponse.SERVING)
            await until_each_has_more(readers)
            core_of(server).kill()
            await until_status(watch, HealthCheckResponse.NOT_SERVING)
    for reader, expected in zip(readers, undisturbed, strict=True):
        assert reader.answer == expected.answer
    pauses = max(reader.longest_pause_s for reader in readers), max(each.longest_pause_s for each in undisturbed)
    print(f"\nlongest pause {pauses[0]:.2f} s with {NUM_KILLS} dead cores, {pauses[1]:.2f} s without")


@pytest.mark.parametrize("server", [("--core-ping-timeout", "2", "--core-stuck-timeout", "6")], indirect=True)
async def test_a_stuck_core_is_replaced(server: Server, stub: InferenceServiceStub) -> None:
    """One that is stopped says nothing: it is killed, and its streams go on as they would have."""
    request = pb.GenerateRequest(
        text=PROMPTS[0], sampling_params={"max_tokens": 40, "temperature": 0.7, "seed": 2, "ignore_eos": True}
    )
    undisturbed = await Reader(stub, request).run()
    reader = Reader(stub, request)
    running = asyncio.ensure_future(reader.run())
    await until_each_has_more([reader])
    stopped = core_of(server)
    stopped.suspend()
    async with asyncio.timeout(240):
        await running
    assert reader.answer == undisturbed.answer
    assert not stopped.is_running()
    assert "it is stuck" in server.process.log
