"""Servers, and proxies before them, that answer as none should: nothing of it may hide an error or make a call hang."""

import asyncio
import subprocess
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate_client import (
    AsyncClient,
    CallCancelledError,
    Client,
    FinishReason,
    OverloadedError,
    Retry,
)
from sluicegate_client.errors import error_of_request
from sluicegate_client.retry import Attempts
from tests.clients.fake_odd_server import OddService, odd_server
from tests.clients.fake_server import FakeServer
from tests.clients.test_cli import SLUICEGATE, SOON_S
from tests.clients.test_retry import waits_of


def _status(*details: Any) -> Status:
    status = Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message="full")
    for detail in details:
        status.details.add().Pack(detail)
    return status


GARBLED = Status(
    details=[
        AnyMessage(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff\xff"),
        AnyMessage(type_url="type.googleapis.com/of.somebody.Else", value=b"\xff\xff"),
        *_status(RetryInfo(retry_delay=Duration(seconds=40))).details,
    ]
)


@pytest.mark.parametrize(
    ("details", "retry_after"), [(b"\xff\xff\xff", None), (b"", None), (GARBLED.SerializeToString(), 40.0)]
)
def test_details_that_cannot_be_read(details: bytes, retry_after: float | None) -> None:
    """Are left out: the error keeps its code, its message and the other details."""
    service = OddService()
    service.details = details
    with odd_server(service) as address, Client(address) as client, pytest.raises(OverloadedError) as full:
        client.generate("x")
    assert (str(full.value), full.value.reason, full.value.retry_after) == ("full", "", retry_after)


@pytest.mark.parametrize(
    ("retry", "waits"),
    [
        (RetryInfo(), [0.2, 0.4]),
        (RetryInfo(retry_delay=Duration()), [0.2, 0.4]),
        (RetryInfo(retry_delay=Duration(seconds=-5, nanos=-1)), [0.2, 0.4]),
        (RetryInfo(retry_delay=Duration(seconds=10**9)), []),
        (RetryInfo(retry_delay=Duration(seconds=2**62, nanos=2**31 - 1)), []),
    ],
)
def test_delays_that_are_none(retry: RetryInfo, waits: list[float]) -> None:
    """Who says "again", but not when, is asked less and less often; who says in 30 years is not waited for."""
    error = error_of_request(_status(ErrorInfo(reason="QUEUE_FULL"), retry))
    waited = waits_of(Attempts(Retry(max_attempts=3), None), error)
    assert [most / 2 <= wait_s <= most * 1.1 for wait_s, most in zip(waited, waits, strict=True)] == [True] * len(waits)


def test_a_server_that_is_away_for_long() -> None:
    """Waits have a bound, however many attempts there may be."""
    attempts = Attempts(Retry(max_attempts=3000), None)
    away = error_of_request(_status(RetryInfo()))
    assert max(attempts.wait_s(away) for _ in range(2999)) <= 33


@pytest.mark.parametrize("resume", [False, True])
def test_deltas_after_the_end(resume: bool) -> None:
    """Are the server's to explain: they come as they are."""
    service = OddService()
    delta = pb.GenerateStreamResponse(delta=pb.Delta(text="x"))
    service.events = (
        delta,
        pb.GenerateStreamResponse(finished=pb.Finished(finish_reason=pb.FINISH_REASON_STOP)),
        delta,
    )
    with odd_server(service) as address, Client(address) as client:
        assert [each.text for each in client.stream("x", resume=resume)] == ["x", "x"]


def test_a_stream_without_an_end() -> None:
    """The command says so, and fails."""
    with odd_server(OddService()) as address:
        done = subprocess.run(
            [SLUICEGATE, "generate", "x", "--address", address], capture_output=True, text=True, timeout=SOON_S
        )
    assert (done.returncode, done.stderr) == (1, "Error: the server ended the stream before the answer\n")


async def test_a_reason_that_is_not_known() -> None:
    """Is one all the same: a newer server's answers can be read."""
    with odd_server(OddService()) as address:
        async with AsyncClient(address) as client, client.multiplexed() as session:
            stream = session.stream("x")
            assert [delta async for delta in stream] == []
    assert stream.finished[0].finish_reason is FinishReason.OTHER


async def test_a_client_that_is_closed_under_its_calls(server: FakeServer) -> None:
    """Each raises CallCancelledError: nobody has cancelled the tasks that wait for them."""
    client = AsyncClient(server.address)
    async with client.multiplexed() as session:
        streams = client.stream("one hang"), session.stream("one hang")
        for stream in streams:
            await anext(stream)
        waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
        waiting.append(asyncio.ensure_future(client.generate("hang")))
        await asyncio.sleep(0)
        await client.close()
        results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), SOON_S)
    assert [type(result) for result in results] == [CallCancelledError] * 3
