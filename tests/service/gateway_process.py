"""A gateway process of its own, over the tokens of byte_model, with any command for its core, or a core that dials it.

``python -m tests.service.gateway_process FOLDER DRAIN_TIMEOUT_S TERMS SIZES ADDRESS CORE...`` is the child; TERMS
(JSON) are those of the cores, SIZES those of the gateway; CORE is a command, or the one address of the handshake.
"""

import asyncio
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from bench.null_core import __name__ as null_core
from service.cli.options.cores import COORDINATOR_COMMAND
from service.cli.options.workers import WORKER_COMMAND
from service.config import CoreConfig, GatewayConfig, LimitsConfig, ListenConfig, WorkersConfig
from service.models import ModelFiles
from service.server import run

PACED_CORE = [sys.executable, "-m", null_core, "--tokens-per-second", "100", "--token-ids", "97,98,99"]
_READY = re.compile(r"ready grpc=(\S+) model=\S+ seconds=\d+\.\d")


class PythonProcess:
    """``python -m MODULE ARGUMENTS``. Use as ``async with``; whatever still lives at the end of the block is killed.

    ``folder`` is its TMPDIR: what it leaves behind lies there.
    """

    def __init__(
        self, folder: Path, module: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self._environment = environment or {}
        self.folder = folder
        self._arguments = ["-m", module, *arguments]
        self._lines: list[str] = []
        self._changed = asyncio.Event()

    @property
    def log(self) -> str:
        return "".join(self._lines)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def until_ready(self) -> str:
        """The address it serves at."""
        return (await self.until_logged(_READY)).group(1)

    async def metrics_address(self) -> str:
        """Where Prometheus asks."""
        return (await self.until_logged(r"metrics on http://(\S+)/metrics;")).group(1)

    async def admin_address(self) -> str:
        """Where operators call."""
        return (await self.until_logged(r"admin on (\S+);")).group(1)

    async def until_logged(self, pattern: re.Pattern[str] | str) -> re.Match[str]:
        """The first match in the log, as soon as it is there."""
        async with asyncio.timeout(60):
            while (match := re.search(pattern, self.log)) is None:
                assert not self._reading.done(), f"ended without {pattern}:\n{self.log}"
                self._changed.clear()
                await self._changed.wait()
        return match

    async def exit_code(self) -> int:
        async with asyncio.timeout(60):
            await self._reading
            return await self._process.wait()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def core(self) -> psutil.Process:
        """Its child."""
        (child,) = psutil.Process(self.pid).children()
        return child

    def leftovers(self) -> list[str]:
        """Files in its folder."""
        return sorted(path.name for path in self.folder.iterdir())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._lines.append(line.decode())
            self._changed.set()
        self._changed.set()

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self._arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **self._environment}
            | {"TMPDIR": str(self.folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._reading = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._alive():
            process.kill()
        await self._process.wait()
        self._reading.cancel()

    def _alive(self) -> Iterator[psutil.Process]:
        try:
            gateway = psutil.Process(self.pid)
            yield from [*gateway.children(), gateway]
        except psutil.NoSuchProcess:
            return


class GatewayProcess(PythonProcess):
    """The child of this module. ``core`` is a command, or the one address of the handshake."""

    def __init__(
        self,
        model: ModelFiles,
        folder: Path,
        core: Sequence[str] = PACED_CORE,
        drain_timeout_s: float = 20,
        load_timeout_s: float = 60,
        address: str = "127.0.0.1:0",
        ping_timeout_s: float = 600,
        data_parallel_size: int = 1,
        lockstep: bool = False,
        max_restarts: int = 0,
        environment: Mapping[str, str] | None = None,
        num_workers: int = 1,
        worker_terms: Mapping[str, Any] | None = None,
        max_queued_requests: int = 2048,
        lame_duck_s: float = 0,
        **more_terms: Any,
    ) -> None:
        terms = {
            "load_timeout_s": load_timeout_s,
            "ping_timeout_s": ping_timeout_s,
            "data_parallel_size": data_parallel_size,
            "max_restarts": max_restarts,
            "coordinator_command": COORDINATOR_COMMAND if lockstep else (),
            **more_terms,
        }
        workers = {"num_workers": num_workers, **(worker_terms or {})}
        sizes = {"workers": workers, "max_queued_requests": max_queued_requests, "lame_duck_s": lame_duck_s}
        arguments = str(model.path), str(drain_timeout_s), json.dumps(terms), json.dumps(sizes), address, *core
        super().__init__(folder, __name__, *arguments, environment=environment)

    def cores(self) -> list[psutil.Process]:
        """Its children, by rank."""
        pids = (int(pid) for pid in re.findall(r"core started, pid ([0-9]+)", self.log))
        return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]

    def workers(self) -> list[psutil.Process]:
        """Its children that serve as it does, by number."""
        pids = dict(re.findall(r"gateway worker ([0-9]+) started, pid ([0-9]+)", self.log))
        return [psutil.Process(int(pids[number])) for number in sorted(pids)]

    def coordinator(self) -> psutil.Process:
        """The child that is no core."""
        (pid,) = re.findall(r"coordinator started, pid ([0-9]+)", self.log)
        return psutil.Process(int(pid))


def _main(folder: str, drain_timeout_s: str, terms: str, sizes: str, address: str, *core: str) -> int:
    size_of = json.loads(sizes)
    logging.basicConfig(level=logging.INFO)
    return run(
        GatewayConfig(
            ModelFiles("bytes", Path(folder), Path(folder)),
            _core_config(core, json.loads(terms)),
            ListenConfig((address,), "127.0.0.1:0", "127.0.0.1:0"),
            LimitsConfig(
                size_of["max_queued_requests"],
                drain_timeout_s=float(drain_timeout_s),
                lame_duck_s=size_of["lame_duck_s"],
            ),
            workers=WorkersConfig(command=WORKER_COMMAND, **size_of["workers"]),
        )
    )


def _core_config(core: tuple[str, ...], terms: dict[str, Any]) -> CoreConfig:
    if core[0].startswith("ipc:"):
        return CoreConfig(handshake_address=core[0], **terms)
    return CoreConfig(command=core, **terms)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
