import queue
import signal
import threading
from collections.abc import Iterator

import grpc
import psutil
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from sluicegate_client import Client, FinishReason, Retry, Stream, UnavailableError
from tests.e2e.server import EXIT_TIMEOUT_S, Server, serving

PROMPT = "Once upon a time"
NUM_TOKENS = 32


@pytest.fixture
def server() -> Iterator[Server]:
    with serving("--drain-timeout", "240") as server:
        yield server


def _wait_until_not_serving(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        for answer in HealthStub(channel).Watch(HealthCheckRequest(), timeout=EXIT_TIMEOUT_S):
            if answer.status == HealthCheckResponse.NOT_SERVING:
                return


class Reader(threading.Thread):
    """Reads a stream to its end; tells of the first delta."""

    def __init__(self, stream: Stream, begun: queue.SimpleQueue[None]) -> None:
        super().__init__()
        self.stream = stream
        self._begun = begun

    def run(self) -> None:
        next(self.stream)
        self._begun.put(None)
        for _ in self.stream:
            pass


@pytest.mark.parametrize("signals_core", [False, True])
def test_sigterm_lets_running_streams_finish_refuses_new_ones_and_leaves_nothing_behind(
    server: Server, signals_core: bool
) -> None:
    """Streams end as they would have; the exit code is 0; no process, socket or folder is left.

    Also when the core gets the signal too, as it does from a service manager. One more stream keeps the drain from
    ending before a new one has been refused.
    """
    (core,) = processes = psutil.Process(server.process.pid).children(recursive=True)
    begun: queue.SimpleQueue[None] = queue.SimpleQueue()
    with Client(server.address, retry=Retry(max_attempts=1)) as client:
        long_stream = client.stream(PROMPT, max_tokens=4000, ignore_eos=True)
        next(long_stream)
        readers = [Reader(client.stream(PROMPT, max_tokens=NUM_TOKENS, ignore_eos=True), begun) for _ in range(3)]
        for reader in readers:
            reader.start()
        for _ in readers:
            begun.get(timeout=EXIT_TIMEOUT_S)

        if signals_core:
            core.terminate()
        server.process.send_signal(signal.SIGTERM)
        _wait_until_not_serving(server.address)
        with pytest.raises(UnavailableError) as refused:
            client.generate(PROMPT, max_tokens=1)
        for reader in readers:
            reader.join()
        next(long_stream)
        long_stream.cancel()

    assert refused.value.retry_after is not None
    assert [reader.stream.finished[0].finish_reason for reader in readers] == [FinishReason.LENGTH] * 3
    assert [reader.stream.finished[0].usage.num_output_tokens for reader in readers] == [NUM_TOKENS] * 3
    assert server.process.wait(EXIT_TIMEOUT_S) == 0
    assert not [process for process in processes if process.is_running()]
    assert [*server.folder.iterdir()] == []


def test_a_drain_that_takes_too_long_aborts_the_rest_and_says_so() -> None:
    """Past the drain timeout the streams end with ABORT, and what was generated is kept."""
    with serving("--drain-timeout", "0.2") as server, Client(server.address) as client:
        stream = client.stream(PROMPT, max_tokens=4000, ignore_eos=True)
        next(stream)
        server.process.send_signal(signal.SIGTERM)
        for _ in stream:
            pass
        assert stream.finished[0].finish_reason is FinishReason.ABORT
        assert server.process.wait(EXIT_TIMEOUT_S) == 0


def test_a_core_that_dies_and_may_not_be_replaced_ends_the_stream_and_the_server() -> None:
    """UNAVAILABLE with a time to retry, and an exit code that lets a supervisor start it anew."""
    with serving("--max-core-restarts", "0") as server, Client(server.address) as client:
        stream = client.stream(PROMPT, max_tokens=4000, ignore_eos=True)
        next(stream)
        psutil.Process(server.process.pid).children()[0].kill()
        with pytest.raises(UnavailableError) as lost:
            list(stream)
        assert lost.value.retry_after is not None
        assert server.process.wait(EXIT_TIMEOUT_S) != 0


def test_a_gateway_that_dies_takes_its_core_with_it() -> None:
    """No orphan holds the memory."""
    with serving() as server:
        core = psutil.Process(server.process.pid).children()[0]
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(EXIT_TIMEOUT_S)
        core.wait(EXIT_TIMEOUT_S)
