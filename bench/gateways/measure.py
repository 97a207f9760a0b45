"""One gateway under one load: what it cost and how late tokens came."""

import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.gateways.api import Api, Stream
from bench.gateways.contender import Contender, ContenderError, Running, running
from bench.gateways.http2 import Call, Connection
from bench.gateways.latency import added_latencies_s

_STREAMS_PER_CONNECTION = 64
_PROMPT = range(100, 116)
_TOKENS_WITH_TEXT = "100-1099"
_WARM_UP_TOKENS = 8
_HEALTH_INTERVAL_S = 0.1
_TIMEOUT_S = 300.0
_SETTLE_S = 8.0


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
    """``cpu_us_per_token`` of all processes of the gateway. Latencies, from the core's step to the client, are zero
    where the load is flooded, and ``health_ms``, the slowest answer while it lasted, where there is no health service.
    """

    num_failed: int
    tokens_per_s: float
    cpu_us_per_token: float
    tokens_per_cpu_s: float
    tokens_per_message: float
    latency_p50_ms: float
    latency_p99_ms: float
    health_ms: float
    client_cpu_share: float
    """Of one CPU, what this client took: near 1 it is the client that was measured."""


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
        core = ["--tokens-per-second", "0.02", "--token-ids", _TOKENS_WITH_TEXT]
        with running(contender, model, Path(folder), *core) as gateway:
            return asyncio.run(_idle_stream_bytes(contender.api, num_streams, gateway))


async def _measure(api: Api, load: Load, gateway: Running, steps: Path) -> Figures:
    await _run(api, _streams("warm-up", min(load.num_streams, 32), _WARM_UP_TOKENS), gateway)
    me = psutil.Process()
    cpu_s, my_cpu_s, start = gateway.cpu_s(), sum(me.cpu_times()[:2]), time.monotonic()
    health = asyncio.ensure_future(_slowest_health_s(gateway.place.port))
    calls = await _run(api, _streams("s", load.num_streams, load.num_tokens), gateway)
    seconds, cpu_s, my_cpu_s = time.monotonic() - start, gateway.cpu_s() - cpu_s, sum(me.cpu_times()[:2]) - my_cpu_s
    health.cancel()
    arrivals = _arrivals(api, calls)
    num_tokens = sum(num for of_stream in arrivals for _, num in of_stream)
    if not num_tokens:
        raise ContenderError(f"no token came: gRPC status {calls[0].status}")
    num_complete = sum(sum(num for _, num in of_stream) == load.num_tokens for of_stream in arrivals)
    late = np.zeros(1)
    if load.tokens_per_second:
        made = np.fromfile(steps)
        late = np.concatenate([added_latencies_s(of_stream, made) for of_stream in arrivals])
    p50, p99 = np.percentile(late, (50, 99)) * 1e3
    return Figures(
        num_failed=load.num_streams - num_complete,
        tokens_per_s=num_tokens / seconds,
        cpu_us_per_token=cpu_s / num_tokens * 1e6,
        tokens_per_cpu_s=num_tokens / cpu_s,
        tokens_per_message=num_tokens / sum(len(call.messages) for call in calls),
        latency_p50_ms=float(p50),
        latency_p99_ms=float(p99),
        health_ms=(await _result_of(health)) * 1e3,
        client_cpu_share=my_cpu_s / seconds,
    )


async def _idle_stream_bytes(api: Api, num_streams: int, gateway: Running) -> float:
    await _run(api, _streams("warm-up", 1, 1), gateway)
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
