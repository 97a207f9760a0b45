"""``python -m bench.endurance``: many requests, half of which their clients give up at random moments; what stays?"""

import asyncio
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import click
import grpc
import psutil
from rich.console import Console
from rich.table import Table

from bench.gateways.api import GENERATE_STREAM
from bench.gateways.contender import Running, ours, running
from bench.gateways.model_option import model_option
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.control_service_pb2 import GetLoadRequest
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from sluicegate.v1.sampling_params_pb2 import SamplingParams

_IDLE_TIMEOUT_S = 60.0
_MAX_LIFE_S = 0.05
"""A call that is given up is given up before."""
_NUM_LOOKS = 10


class Endurance:
    """Puts the load on ``stub``, the same for the same ``seed``."""

    def __init__(self, stub: Any, seed: int) -> None:
        self._stub = stub
        self._chance = random.Random(seed)
        self.outcomes: Counter[str] = Counter()

    async def run(self, count: int, num_at_once: int) -> None:
        """So many calls, so many of them at once."""
        remaining = iter(range(count))

        async def one_after_another() -> None:
            for _ in remaining:
                await self._call()

        await asyncio.gather(*(one_after_another() for _ in range(num_at_once)))

    async def _call(self) -> None:
        """Unary or a stream, of one to four sequences, of one to forty tokens, kept or given up."""
        params = SamplingParams(
            n=self._chance.choice((1, 1, 4)), temperature=1, max_tokens=self._chance.randint(1, 40), ignore_eos=True
        )
        request = pb.GenerateRequest(
            text="A text of some words. " * self._chance.choice((1, 10, 500)), sampling_params=params
        )
        is_stream = self._chance.random() < 0.5
        call = self._stub.GenerateStream(request) if is_stream else self._stub.Generate(request)
        life_s = self._chance.random() * _MAX_LIFE_S if self._chance.random() < 0.5 else None
        try:
            async with asyncio.timeout(life_s):
                await (_read(call) if is_stream else call)
            self.outcomes["ended"] += 1
        except TimeoutError:
            call.cancel()
            self.outcomes["given up"] += 1
        except grpc.aio.AioRpcError as error:
            self.outcomes[error.code().name] += 1


async def _read(call: Any) -> None:
    async for _ in call:
        pass


async def _until_idle(control: Any) -> None:
    """Return when no table holds a request: neither the gateway's nor the core's."""
    async with asyncio.timeout(_IDLE_TIMEOUT_S):
        while True:
            load = (await control.GetLoad(GetLoadRequest())).load
            if load.num_requests == load.num_running == load.num_waiting == 0:
                return
            await asyncio.sleep(0.05)


async def _look(server: Running, core: psutil.Process, count: int, num_at_once: int, seed: int) -> None:
    table = Table("calls", "gateway MB", "core MB", title=f"{count} calls, {num_at_once} at once")
    address, admin = f"127.0.0.1:{server.place.port}", f"unix:{server.place.folder}/admin"
    async with grpc.aio.insecure_channel(address) as public, grpc.aio.insecure_channel(admin) as operators:
        endurance, control = Endurance(InferenceServiceStub(public), seed), ControlServiceStub(operators)
        for look in range(_NUM_LOOKS + 1):
            await _until_idle(control)
            sizes = server.rss_bytes(), core.memory_info().rss
            table.add_row(str(look * (count // _NUM_LOOKS)), *(f"{size / 1e6:.0f}" for size in sizes))
            if look < _NUM_LOOKS:
                await endurance.run(count // _NUM_LOOKS, num_at_once)
    Console().print(table)
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in sorted(endurance.outcomes.items()))
    click.echo(f"{outcomes}; in the end the gateway's tables and the core's are empty")


def _core_of(server: Running) -> psutil.Process:
    """The other child of this process."""
    (core,) = (child for child in psutil.Process().children() if child.pid != server.process.pid)
    return core


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.option("--requests", "count", type=click.IntRange(min=_NUM_LOOKS), default=10_000, help="Calls in all.")
@click.option("--concurrency", type=click.IntRange(min=1), default=100, help="Calls at once.")
@click.option("--seed", type=int, default=1, help="Of what is chance.")
@model_option
def main(count: int, concurrency: int, seed: int, model: Path) -> None:
    """Give up half of many calls at random moments, and print what gateway and core hold on the way."""
    gateway, pace = ours("sluicegate gateway", GENERATE_STREAM), ("--tokens-per-second", "500")
    with tempfile.TemporaryDirectory() as folder, running(gateway, model, Path(folder), *pace) as server:
        asyncio.run(_look(server, _core_of(server), count, concurrency, seed))


if __name__ == "__main__":
    main()
