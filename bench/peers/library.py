"""Engines that are libraries: a driver of ``bench.peers.drivers`` runs them in an environment of their own."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bench
from bench.load import RequestRecord
from bench.peers.environment import PeerEnvironment
from bench.peers.peer import Engine, PeerError, Place, Prompts
from bench.peers.process import ended, running
from bench.workload import Workload

_IMPORTS = {"PYTHONPATH": str(Path(bench.__file__).parents[1])}
_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Driver:
    """One that runs, and has said that it is ready."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    async def run(self, workload: Workload, prompts: Prompts) -> list[RequestRecord]:
        load = {
            "prompts": prompts,
            "output_tokens": workload.output_tokens,
            "concurrency": workload.concurrency,
            "shared_prefix_tokens": workload.shared_prefix_tokens,
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(load).encode() + b"\n")
        return [RequestRecord(**record) for record in await self.answer()]

    async def answer(self) -> Any:
        """Its next line."""
        assert self.process.stdout is not None
        try:
            line = await asyncio.wait_for(self.process.stdout.readline(), _TIMEOUT_S)
        except TimeoutError:
            raise PeerError(f"{self.name} has not answered within {_TIMEOUT_S:g} s") from None
        if not line:
            raise ended(self.name, self.log)
        return json.loads(line)


@asynccontextmanager
async def start(
    place: Place, _setup: str, driver: str, home: PeerEnvironment, converter: str | None = None
) -> AsyncIterator[Engine]:
    """Runs ``bench.peers.drivers.run_DRIVER MODEL THREADS`` in its environment; ready when it says so.

    MODEL is the GGUF, or what ``convert_CONVERTER`` has made of it.
    """
    model = converted(place.gguf, converter, home) if converter else place.gguf
    command = [str(home.python), "-m", f"bench.peers.drivers.run_{driver}", str(model), str(place.num_threads)]
    log = place.folder / f"{driver}.log"
    async with running(command, log, {**place.environment, **_IMPORTS}, with_pipes=True) as process:
        engine = Driver(driver, process, log)
        await engine.answer()
        yield engine


def converted(gguf: Path, converter: str, home: PeerEnvironment) -> Path:
    """What ``bench.peers.drivers.convert_CONVERTER`` has made of it, once, in an environment."""
    folder = home.folder / "models" / gguf.stem
    if not folder.exists():
        half = folder.with_suffix(".half")
        home.run([str(home.python), "-m", f"bench.peers.drivers.convert_{converter}", str(gguf), str(half)], _IMPORTS)
        half.rename(folder)
    return folder
