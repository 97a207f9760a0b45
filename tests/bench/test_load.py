import asyncio
import random
from collections.abc import AsyncIterator

import grpc
import pytest

from bench.load import MultiplexedSender, RequestRecord, Sender, closed_loop, open_loop
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.sampling_params_pb2 import SamplingParams
from tests.clients.fake_server import fake_server

REQUESTS = [pb.GenerateRequest(request_id=str(index)) for index in range(10)]


class CountingSend:
    """Remembers how many requests ran at once; lets each run for some turns of the loop."""

    def __init__(self) -> None:
        self.num_running = self.max_running = 0

    async def __call__(self, request: pb.GenerateRequest) -> RequestRecord:
        self.num_running += 1
        self.max_running = max(self.max_running, self.num_running)
        for _ in range(3):
            await asyncio.sleep(0)
        self.num_running -= 1
        return RequestRecord(start=float(request.request_id))


async def test_closed_loop_keeps_the_concurrency_and_sends_every_request_once() -> None:
    """Never more at once than asked for, and as many."""
    send = CountingSend()
    records = await closed_loop(send, REQUESTS, 4)
    assert send.max_running == 4
    assert sorted(record.start for record in records) == list(map(float, range(10)))


async def test_open_loop_does_not_wait_for_answers() -> None:
    """Arrivals go on while everything sent before still runs."""
    all_sent = asyncio.Event()
    num_sent = 0

    async def send(_request: pb.GenerateRequest) -> RequestRecord:
        nonlocal num_sent
        num_sent += 1
        if num_sent == len(REQUESTS):
            all_sent.set()
        await all_sent.wait()
        return RequestRecord(start=0.0)

    records = await open_loop(send, REQUESTS, rate=1e4, rng=random.Random(0))
    assert len(records) == len(REQUESTS)


@pytest.fixture(params=[Sender, MultiplexedSender])
async def send(request: pytest.FixtureRequest) -> AsyncIterator[Sender | MultiplexedSender]:
    with fake_server() as server:
        async with (
            grpc.aio.insecure_channel(server.address) as channel,
            request.param(channel, timeout_s=10.0) as sender,
        ):
            yield sender


def _request(**fields: object) -> pb.GenerateRequest:
    return pb.GenerateRequest(sampling_params=SamplingParams(max_tokens=3), **fields)


async def test_a_record_holds_when_each_delta_came(send: Sender | MultiplexedSender) -> None:
    """Times rise from start to end; tokens are counted."""
    record = await send(_request(token_ids=pb.TokenIds(ids=[1])))
    times = [record.start, *(time for time, _ in record.arrivals), record.end]
    assert times == sorted(times)
    assert (record.num_output_tokens, record.num_prompt_tokens, record.error) == (3, 3, None)


async def test_failures_are_recorded_by_status_and_raise_nothing(send: Sender | MultiplexedSender) -> None:
    """One request's error does not end the run; a short answer counts as one."""
    assert (await send(_request(text="refuse"))).error == "INVALID_ARGUMENT"
    assert (await send(_request(text="only two"))).error == "INCOMPLETE"


async def test_requests_of_one_stream_come_apart() -> None:
    """Many at once, each with its own tokens; a stream that breaks fails those that wait, by its status."""
    with fake_server() as server:
        async with (
            grpc.aio.insecure_channel(server.address) as channel,
            MultiplexedSender(channel, timeout_s=10.0) as send,
        ):
            requests = [_request(token_ids=pb.TokenIds(ids=[1])) for _ in range(20)]
            records = await asyncio.gather(*map(send, requests))
            assert [(record.num_output_tokens, record.error) for record in records] == [(3, None)] * 20
            assert (await send(_request(text="break"))).error == "UNAVAILABLE"
            assert len(server.service.requests) == 21
