"""Calls that are made again: when, how often, within what time."""

import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from sluicegate_client import (
    AsyncClient,
    Client,
    InvalidRequestError,
    OverloadedError,
    Retry,
    SluicegateError,
    TlsError,
    UnavailableError,
    tls_credentials,
)
from sluicegate_client.retry import Attempts
from sluicegate_client.terminal import line_of
from tests.clients.fake_server import FakeServer, fake_server
from tests.clients.test_cli import SLUICEGATE, SOON_S

QUEUE_FULL = OverloadedError("full", grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", retry_after=2.0)
TOO_LARGE = OverloadedError("too large", grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE")
NOBODY = UnavailableError("no connection", grpc.StatusCode.UNAVAILABLE)


def waits_of(attempts: Attempts, error: SluicegateError) -> list[float]:
    """Until there is to be no further attempt."""
    waits = []
    while True:
        try:
            waits.append(attempts.wait_s(error))
        except type(error):
            return waits


def test_the_server_is_waited_for_as_long_as_it_asks() -> None:
    """Never shorter, and a tenth longer at most; max_attempts counts the first one."""
    waits = waits_of(Attempts(Retry(max_attempts=4), None), QUEUE_FULL)
    assert len(waits) == 3
    assert all(2.0 <= wait_s <= 2.2 for wait_s in waits)


def test_without_a_word_from_a_server_the_waits_double() -> None:
    """Up to max_wait_s, each less up to a half."""
    waits = waits_of(Attempts(Retry(max_attempts=6, backoff_s=1, max_wait_s=4), None), NOBODY)
    assert [most / 2 <= wait_s <= most * 1.1 for wait_s, most in zip(waits, [1, 2, 4, 4, 4], strict=True)] == [True] * 5


@pytest.mark.parametrize(
    ("max_attempts", "line"), [(1, "full"), (3, "full; gave up after 3 tries")], ids=["a single one", "three"]
)
def test_an_error_says_that_no_further_attempt_is_made(max_attempts: int, line: str) -> None:
    """By a note, which commands print; not where one attempt was all that there should be."""
    error = OverloadedError("full", grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", retry_after=2.0)
    waits_of(Attempts(Retry(max_attempts=max_attempts), None), error)
    assert line_of(error) == line


@pytest.mark.parametrize(
    ("retry", "timeout_s", "error"),
    [
        (Retry(max_attempts=1), None, QUEUE_FULL),
        (Retry(max_wait_s=1.9), None, QUEUE_FULL),
        (Retry(), 1.9, QUEUE_FULL),
        (Retry(), None, TOO_LARGE),
        (Retry(), None, InvalidRequestError("wrong")),
        (Retry(), None, TlsError("not trusted")),
    ],
)
def test_what_is_not_made_again(retry: Retry, timeout_s: float | None, error: SluicegateError) -> None:
    """What the policy forbids, what the timeout leaves no time for, and what would fail again."""
    assert waits_of(Attempts(retry, timeout_s), error) == []


@pytest.mark.parametrize("field", [{"max_attempts": 0}, {"max_wait_s": -1.0}, {"backoff_s": float("nan")}])
def test_a_policy_that_cannot_be(field: dict[str, float]) -> None:
    """The error names the field, the bound and the value."""
    with pytest.raises(ValueError, match=rf"{next(iter(field))} must be at least [01], got"):
        Retry(**field)  # type: ignore[arg-type]


CALLS: list[Callable[[Client], object]] = [
    lambda client: client.generate("busy").text,
    lambda client: "".join(delta.text for delta in client.stream("busy")),
    lambda client: client.tokenize("busy"),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_busy_server_answers_in_the_end(server: FakeServer, call: Callable[[Client], object]) -> None:
    """Every unary call and a stream are made again by default; nobody else notices, and on_wait hears of each wait."""
    waits: list[tuple[str, float]] = []
    with Client(
        server.address, retry=Retry(on_wait=lambda error, wait_s: waits.append((error.reason, wait_s)))
    ) as client:
        assert call(client)
    assert len(server.service.requests) == 3
    assert [reason for reason, _ in waits] == ["QUEUE_FULL"] * 2
    assert all(wait_s >= 0.01 for _, wait_s in waits)


async def test_a_busy_server_answers_an_async_client_in_the_end(server: FakeServer) -> None:
    """The same for asyncio."""
    async with AsyncClient(server.address) as client:
        assert (await client.generate("busy")).text == "busy "
        server.service.num_refusals = 5
        assert [delta.text async for delta in client.stream("busy")] == ["busy "]
        assert len(server.service.requests) == 6
        server.service.num_refusals = 8
        assert await client.tokenize("busy")


async def test_a_session_hears_of_every_refusal(server: FakeServer) -> None:
    """Of many requests on one stream none is made again."""
    async with AsyncClient(server.address) as client, client.multiplexed() as session:
        with pytest.raises(OverloadedError):
            await session.generate("overload")
    assert len(server.service.requests) == 1


def test_the_timeout_holds_for_all_attempts_together(server: FakeServer) -> None:
    """An attempt gets what the ones before have left, and a wait that would outlast it is not begun."""
    attempts = Attempts(Retry(), 100.0)
    first, _, second = attempts.remaining_s, attempts.wait_s(QUEUE_FULL), attempts.remaining_s
    assert first is not None
    assert second is not None
    assert 100 > first > second
    with Client(server.address) as client, pytest.raises(OverloadedError):
        client.generate("overload", timeout=1.4)
    assert len(server.service.requests) == 1


def test_a_server_that_comes_later(short_folder: Path) -> None:
    """Where nobody listens, the call is made again until somebody does."""
    address = f"unix:{short_folder}/socket"
    with ExitStack() as stack:
        waits: list[float] = []

        def start_the_server(_: SluicegateError, wait_s: float) -> None:
            if not waits:
                stack.enter_context(fake_server(address))
            waits.append(wait_s)

        retry = Retry(max_attempts=100, backoff_s=0.01, max_wait_s=0.1, on_wait=start_the_server)
        client = stack.enter_context(Client(address, retry=retry))
        assert client.generate("hello").text == "hello "
        assert waits


def test_cancel_ends_a_wait(server: FakeServer) -> None:
    """The iteration ends quietly, and no call follows."""
    with Client(server.address, retry=Retry(on_wait=lambda *_: stream.cancel())) as client:
        stream = client.stream("overload")
        assert list(stream) == []
    assert len(server.service.requests) == 1


async def test_cancel_ends_the_wait_of_an_async_stream(server: FakeServer) -> None:
    """The same for asyncio."""
    async with AsyncClient(server.address, retry=Retry(on_wait=lambda *_: stream.cancel())) as client:
        stream = client.stream("overload")
        assert [delta async for delta in stream] == []
    assert len(server.service.requests) == 1


def test_what_on_wait_raises_ends_the_call(server: FakeServer) -> None:
    """A program can decide for itself."""

    def give_up(error: SluicegateError, wait_s: float) -> None:
        raise RuntimeError(f"{error.reason} for {wait_s:.0f} s")

    with (
        Client(server.address, retry=Retry(on_wait=give_up)) as client,
        pytest.raises(RuntimeError, match="QUEUE_FULL"),
    ):
        client.generate("overload")


def test_certificates_are_not_tried_again(server: FakeServer) -> None:
    """A server without TLS will have none a second later."""
    with Client(server.address, credentials=tls_credentials()) as client, pytest.raises(TlsError):
        client.generate("hello")


@pytest.mark.parametrize("command", [["generate", "overload"], ["chat"]])
def test_a_command_says_that_itwaits_of(server: FakeServer, command: list[str]) -> None:
    """On stderr, with the reason; Ctrl-C ends the wait. Where nobody listens it does not wait at all."""
    process = subprocess.Popen(
        [SLUICEGATE, *command, "--address", server.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("overload\n")
        process.stdin.flush()
        assert process.stderr.readline().startswith("the queue is full: 8 requests; trying again in 1.")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SOON_S)
    assert "Traceback" not in errors
    assert process.returncode == (130 if command[0] == "generate" else 0)
