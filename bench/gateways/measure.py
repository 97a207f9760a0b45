"""One gateway under one load: what it cost and how late tokens came."""

import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc
from numpy.typing import NDArray

from bench.gateways.api import Api, Stream
from bench.gateways.contender import Contender, ContenderError, Running, running
from bench.gateways.http2 import Call, Connection
from bench.gateways.latency import added_latencies_s

_STREAMS_PER_CONNECTION = 64
_PROMPT = range(100, 116)
_TOKENS_WITH_TEXT = "100-1099"
_NUM_WARM_UP_STREAMS = 32
_WARM_UP_ATTEMPTS, _WARM_UP_PAUSE_S = 60, 0.25
_HEALTH_INTERVAL_S = 0.1
_TIMEOUT_S = 300.0
_IDLE_TOKENS_PER_SECOND = 0.2
_SETTLE_S = 15.0
"""Time for a first token, and hardly more."""


@dataclass(frozen=True)
class Load:
    """``tokens_per_second`` of each stream; 0 = as fast as the core can."""

    num_streams: int
    tokens_per_second: float
    num_tokens: int

    def __str__(self) -> str:
        pace = f"{self.tokens_per_second:g} tokens/s each" if self.tokens_per_second else "flooded"
        return f"{self.num_streams} streams, {pace}"


@dataclass(frozen=True)
class Figures:
    """Of the middle of the run, when all streams run, where they are paced; of all of it where they are flooded.

    CPU times are of all processes of the gateway. Latencies, from the core's step to the client, are zero where the
    load is flooded, and ``health_ms``, the slowest answer while it lasted, where there is no health service.
    """

    num_failed: int
    tokens_per_s: float
    cpu_us_per_token: float
    cpu_us_per_request: float
    """What a request costs beside its tokens: all of the run's CPU time less that of its tokens."""
    tokens_per_message: float
    latency_p50_ms: float
    latency_p99_ms: float
    health_ms: float


@dataclass(frozen=True)
class Window:
    """A part of the run, by the monotonic clock, and the CPU time that the gateway took in it."""

    start: float
    end: float
    cpu_s: float

    def count(self, arrivals: Iterable[Sequence[tuple[float, int]]]) -> int:
        """The tokens that came within it."""
        return sum(num for of_stream in arrivals for time, num in of_stream if self.start <= time < self.end)


def measure(contender: Contender, load: Load, model: Path) -> Figures:
    """Start everything, warm up, measure, end everything. Raises ContenderError."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        steps = Path(folder, "steps")
        core = ["--tokens-per-second", f"{load.tokens_per_second:g}", "--token-ids", _TOKENS_WITH_TEXT]
        with running(contender, model, Path(folder), *core, "--step-log", str(steps)) as gateway:
            return asyncio.run(_measure(contender.api, load, gateway, steps))


def idle_stream_bytes(contender: Contender, num_streams: int, model: Path) -> float:
    """Resident memory of the gateway for each of ``num_streams`` that have had their first token and wait."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        core = ["--tokens-per-second", f"{_IDLE_TOKENS_PER_SECOND:g}", "--token-ids", _TOKENS_WITH_TEXT]
        with running(contender, model, Path(folder), *core) as gateway:
            return asyncio.run(_idle_stream_bytes(contender.api, num_streams, gateway))


async def _measure(api: Api, load: Load, gateway: Running, steps: Path) -> Figures:
    await _warm_up(api, gateway)
    window = asyncio.ensure_future(_middle(load, gateway))
    health = asyncio.ensure_future(_slowest_health_s(gateway.place.port))
    before, start = gateway.cpu_s(), time.monotonic()
    calls = await _run(api, _streams("s", load.num_streams, load.num_tokens), gateway)
    whole = Window(start, time.monotonic(), gateway.cpu_s() - before)
    health.cancel()
    arrivals = _arrivals(api, calls)
    middle = await window if window.done() and load.tokens_per_second else whole
    if not middle.count(arrivals):
        raise ContenderError("no token came in the middle of the run: give it more --tokens")
    late = _late_s(arrivals, np.fromfile(steps), middle) if load.tokens_per_second else np.zeros(1)
    p50_ms, p99_ms = (np.percentile(late, (50, 99)) * 1e3).tolist()
    num_tokens, num_all = middle.count(arrivals), whole.count(arrivals)
    cpu_us_per_token = middle.cpu_s / num_tokens * 1e6
    return Figures(
        num_failed=load.num_streams - sum(sum(n for _, n in of_stream) == load.num_tokens for of_stream in arrivals),
        tokens_per_s=num_tokens / (middle.end - middle.start),
        cpu_us_per_token=cpu_us_per_token,
        cpu_us_per_request=max(whole.cpu_s * 1e6 - num_all * cpu_us_per_token, 0.0) / load.num_streams,
        tokens_per_message=num_all / sum(len(call.messages) for call in calls),
        latency_p50_ms=p50_ms,
        latency_p99_ms=p99_ms,
        health_ms=(await _result_of(health)) * 1e3,
    )


async def _warm_up(api: Api, gateway: Running, num_tokens: int = 8) -> None:
    """Until all of some streams have had their tokens: what listens need not be ready. Raises ContenderError."""
    streams = _streams("warm-up", _NUM_WARM_UP_STREAMS, num_tokens)
    for _ in range(_WARM_UP_ATTEMPTS):
        calls = await _run(api, streams, gateway)
        if sum(num for of_stream in _arrivals(api, calls) for _, num in of_stream) == len(streams) * num_tokens:
            return
        await asyncio.sleep(_WARM_UP_PAUSE_S)
    raise ContenderError(f"no stream is served: gRPC status {calls[0].status}")


async def _middle(load: Load, gateway: Running) -> Window:
    """From a third to two thirds of the time that a paced load takes."""
    third_s = load.num_tokens / load.tokens_per_second / 3 if load.tokens_per_second else 0.0
    await asyncio.sleep(third_s)
    before, start = gateway.cpu_s(), time.monotonic()
    await asyncio.sleep(third_s)
    return Window(start, time.monotonic(), gateway.cpu_s() - before)


def _late_s(
    arrivals: Iterable[Sequence[tuple[float, int]]], made: NDArray[np.float64], window: Window
) -> NDArray[np.float64]:
    """Of the tokens that came within ``window``."""
    late = []
    for of_stream in arrivals:
        times = np.repeat([time for time, _ in of_stream], [num for _, num in of_stream])
        late.append(added_latencies_s(of_stream, made)[(times >= window.start) & (times < window.end)])
    return np.concatenate(late)


async def _idle_stream_bytes(api: Api, num_streams: int, gateway: Running) -> float:
    await _warm_up(api, gateway, num_tokens=1)
    before = gateway.rss_bytes()
    connections = await _connections(api, num_streams, gateway)
    calls = [call for connection, part in connections for call in _start(api, connection, part)]
    await asyncio.sleep(_SETTLE_S)
    if len(_arrivals(api, calls)) < num_streams:
        raise TimeoutError(f"{len(_arrivals(api, calls))} of {num_streams} streams had a token after {_SETTLE_S:g} s")
    used = gateway.rss_bytes() - before
    for connection, _ in connections:
        connection.close()
    return used / num_streams


def _streams(name: str, num_streams: int, num_tokens: int) -> list[Stream]:
    return [Stream(f"{name}-{number}", [*_PROMPT], num_tokens) for number in range(num_streams)]


async def _connections(api: Api, num_streams: int, gateway: Running) -> list[tuple[Connection, list[Stream]]]:
    streams = _streams("idle", num_streams, 4096)
    return [(await Connection.open("127.0.0.1", gateway.place.port), part) for part in _parts(api, streams)]


def _parts(api: Api, streams: Sequence[Stream]) -> Iterator[list[Stream]]:
    """Those of each connection."""
    size = len(streams) if api.carries_many else _STREAMS_PER_CONNECTION
    for start in range(0, len(streams), size):
        yield [*streams[start : start + size]]


async def _run(api: Api, streams: Sequence[Stream], gateway: Running) -> list[Call]:
    """All ``streams`` at once, to their ends."""
    connections = [(await Connection.open("127.0.0.1", gateway.place.port), part) for part in _parts(api, streams)]
    calls = [call for connection, part in connections for call in _start(api, connection, part)]
    await asyncio.wait_for(asyncio.gather(*(call.ended for call in calls)), _TIMEOUT_S)
    for connection, _ in connections:
        connection.close()
    return calls


def _start(api: Api, connection: Connection, streams: Sequence[Stream]) -> list[Call]:
    if not api.carries_many:
        return [connection.start(api.path, api.request(stream)) for stream in streams]
    first, *others = streams
    call = connection.start(api.path, api.request(first), is_last=not others)
    for stream in others:
        connection.send(call, api.request(stream), is_last=stream is others[-1])
    return [call]


def _arrivals(api: Api, calls: Sequence[Call]) -> list[list[tuple[float, int]]]:
    """Time and number of tokens of each message, stream by stream."""
    arrivals: defaultdict[tuple[int, str], list[tuple[float, int]]] = defaultdict(list)
    for number, call in enumerate(calls):
        for arrived_at, message in call.messages:
            for name, num_tokens in api.tokens_of(message):
                if num_tokens:
                    arrivals[number, name].append((arrived_at, num_tokens))
    return [*arrivals.values()]


async def _slowest_health_s(port: int) -> float:
    """The longest time that an answer took, until cancelled."""
    slowest = 0.0
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            while True:
                start = time.monotonic()
                await stub.Check(health_pb2.HealthCheckRequest(), timeout=30)
                slowest = max(slowest, time.monotonic() - start)
                await asyncio.sleep(_HEALTH_INTERVAL_S)
    except asyncio.CancelledError:
        return slowest
    except grpc.aio.AioRpcError:
        return 0.0


async def _result_of(health: "asyncio.Task[float]") -> float:
    try:
        return await health
    except asyncio.CancelledError:
        return 0.0
