"""Sends requests and writes down when what arrived, by the monotonic clock."""

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import grpc

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub


@dataclass(slots=True)
class RequestRecord:
    """One request. Times are in seconds of the monotonic clock."""

    start: float
    end: float = 0.0
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    """Time and number of tokens of every delta."""
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    error: str | None = None
    """The gRPC status of a request that failed."""

    @property
    def num_output_tokens(self) -> int:
        return sum(num_tokens for _, num_tokens in self.arrivals)

    @property
    def ttft_s(self) -> float:
        """From sending the request to its first token."""
        return self.arrivals[0][0] - self.start


Request = TypeVar("Request")
Send = Callable[[pb.GenerateRequest], Coroutine[Any, Any, RequestRecord]]


class Sender:
    """Sends requests on one channel, for any number of tasks, each with ``metadata``. ``timeout_s`` bounds each."""

    def __init__(self, channel: grpc.aio.Channel, timeout_s: float, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._stub = InferenceServiceStub(channel)
        self._timeout_s = timeout_s
        self._metadata = metadata

    async def __call__(self, request: pb.GenerateRequest) -> RequestRecord:
        record = RequestRecord(time.monotonic())
        try:
            async for event in self._stub.GenerateStream(request, timeout=self._timeout_s, metadata=self._metadata):
                _note(record, event)
        except grpc.aio.AioRpcError as error:
            record.error = error.code().name
        else:
            if record.num_output_tokens != request.sampling_params.max_tokens:
                record.error = "INCOMPLETE"
        record.end = time.monotonic()
        return record

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        """Nothing is held between requests."""


class MultiplexedSender:
    """As Sender, but all requests share one stream. To be left when all are done."""

    def __init__(self, channel: grpc.aio.Channel, timeout_s: float, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._stub = InferenceServiceStub(channel)
        self._timeout_s = timeout_s
        self._metadata = metadata
        self._commands: asyncio.Queue[pb.MultiplexedRequest] = asyncio.Queue()
        self._waiting: dict[str, _Waiting] = {}

    async def __call__(self, request: pb.GenerateRequest) -> RequestRecord:
        request_id = uuid.uuid4().hex
        record = RequestRecord(time.monotonic())
        waiting = self._waiting[request_id] = _Waiting(record, asyncio.get_running_loop().create_future())
        command = pb.MultiplexedRequest(generate=request)
        command.generate.request_id = request_id
        self._commands.put_nowait(command)
        try:
            await asyncio.wait_for(waiting.ended, self._timeout_s)
        except TimeoutError:
            record.error = grpc.StatusCode.DEADLINE_EXCEEDED.name
        if record.error is None and record.num_output_tokens != request.sampling_params.max_tokens:
            record.error = "INCOMPLETE"
        del self._waiting[request_id]
        record.end = time.monotonic()
        return record

    async def _read(self) -> None:
        try:
            async for response in self._stub.GenerateMultiplexed(self._sent(), metadata=self._metadata):
                self._note(response)
            self._fail_all("INCOMPLETE")
        except grpc.aio.AioRpcError as error:
            self._fail_all(error.code().name)

    def _note(self, response: pb.MultiplexedResponse) -> None:
        for event in response.events:
            if (waiting := self._waiting.get(event.request_id)) is not None:
                _note(waiting.record, event)
                if event.HasField("finished"):
                    waiting.end()
        for error in response.errors:
            if (waiting := self._waiting.get(error.request_id)) is not None:
                waiting.end(_CODE_NAMES.get(error.status.code, "UNKNOWN"))

    def _fail_all(self, error: str) -> None:
        for waiting in self._waiting.values():
            waiting.end(error)

    async def _sent(self) -> AsyncIterator[pb.MultiplexedRequest]:
        while True:
            yield await self._commands.get()

    async def __aenter__(self) -> Self:
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self._reader.cancel()
        await asyncio.wait([self._reader])


_CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


@dataclass(slots=True)
class _Waiting:
    record: RequestRecord
    ended: "asyncio.Future[None]"

    def end(self, error: str | None = None) -> None:
        self.record.error = error
        if not self.ended.done():
            self.ended.set_result(None)


def _note(record: RequestRecord, event: pb.GenerateStreamResponse) -> None:
    if num_tokens := len(event.delta.token_ids):
        record.arrivals.append((time.monotonic(), num_tokens))
    elif event.HasField("started"):
        record.num_prompt_tokens = event.started.num_prompt_tokens
        record.num_cached_tokens = event.started.num_cached_tokens


async def closed_loop(
    send: Callable[[Request], Coroutine[Any, Any, RequestRecord]], requests: Iterable[Request], concurrency: int
) -> list[RequestRecord]:
    """Keeps ``concurrency`` requests running until all are done."""
    waiting = iter(requests)

    async def worker() -> list[RequestRecord]:
        return [await send(request) for request in waiting]

    return [record for records in await asyncio.gather(*(worker() for _ in range(concurrency))) for record in records]


async def open_loop(
    send: Send, requests: Iterable[pb.GenerateRequest], rate: float, rng: random.Random
) -> list[RequestRecord]:
    """Sends ``rate`` requests per second as a Poisson process, however many are still running."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(send(request)) async for request in _poisson(requests, rate, rng)]
    return [task.result() for task in tasks]


async def _poisson(
    requests: Iterable[pb.GenerateRequest], rate: float, rng: random.Random
) -> AsyncIterator[pb.GenerateRequest]:
    due = time.monotonic()
    for request in requests:
        await asyncio.sleep(due - time.monotonic())
        yield request
        due += rng.expovariate(rate)
