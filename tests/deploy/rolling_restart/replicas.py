"""Servers of one service on this machine: one port, an address each. Their cores make tokens from nowhere, in time."""

import asyncio
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import grpc

from service.models import ModelFiles
from sluicegate.v1.control_service_pb2 import WatchLoadRequest
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from tests.service.gateway_process import GatewayProcess

CORE = [sys.executable, "-m", "bench.null_core", "--tokens-per-second", "50", "--token-ids", "97,98,99"]
CORE += ["--shutdown-timeout", "300"]


class Replica:
    """A place for a server, at ``address``; each that is started there is another process."""

    def __init__(self, address: str, model: ModelFiles, folder: Path, lame_duck_s: float) -> None:
        self.address = address
        self._model = model
        self._folder = folder
        self._lame_duck_s = lame_duck_s
        self._process: GatewayProcess | None = None

    @property
    def process(self) -> GatewayProcess:
        """The one that is there."""
        assert self._process is not None, "started"
        return self._process

    async def start(self) -> None:
        """Returns when it is ready."""
        self._process = GatewayProcess(
            self._model, self._folder, CORE, address=self.address, lame_duck_s=self._lame_duck_s
        )
        await self._process.__aenter__()
        await self._process.until_ready()

    async def until_used(self) -> None:
        """Returns when requests run on it: whoever balances load has found it."""
        async with grpc.aio.insecure_channel(await self.process.admin_address()) as channel:
            async for answer in ControlServiceStub(channel).WatchLoad(WatchLoadRequest(), timeout=60):
                if answer.load.num_requests:
                    return
        raise AssertionError("WatchLoad ended")

    async def end(self) -> None:
        """As a service manager does: SIGTERM, and it has as long as it takes."""
        self.process.send_signal(signal.SIGTERM)
        assert await self.process.exit_code() == 0, self.process.log
        await self.close()

    async def die(self) -> None:
        """As when its machine loses power."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.exit_code()
        await self.close()

    async def close(self) -> None:
        """Nothing of it is left; harmless if nothing is there."""
        if self._process is not None:
            await self._process.__aexit__(None, None, None)
            self._process = None


class Replicas:
    """Two, all ready while the ``async with`` block begins."""

    def __init__(self, model: ModelFiles, folder: Path, lame_duck_s: float) -> None:
        port = _free_port()
        self.all: list[Replica] = []
        for host in ("127.0.0.1", "127.0.0.2"):
            own = folder / host
            own.mkdir()
            self.all.append(Replica(f"{host}:{port}", model, own, lame_duck_s))
        self._stack = AsyncExitStack()

    @property
    def addresses(self) -> Sequence[str]:
        return [replica.address for replica in self.all]

    async def restart_one_by_one(self) -> None:
        """The next one ends only when requests run on the one before again."""
        for replica in self.all:
            await replica.end()
            await replica.start()
            await replica.until_used()

    async def __aenter__(self) -> Self:
        for replica in self.all:
            self._stack.push_async_callback(replica.close)
        await asyncio.gather(*(replica.start() for replica in self.all))
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self._stack.aclose()


def _free_port() -> int:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        port: int = first.getsockname()[1]
        second.bind(("127.0.0.2", port))
    return port
