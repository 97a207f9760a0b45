"""The network between a core and its gateway, which can be cut: nothing passes any more, and no connection closes."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from core.wire.messages import EngineAddresses


class Cable:
    """Forwards tcp connections to ``addresses``. Use as ``async with``; cores connect to its own ``addresses``."""

    def __init__(self, addresses: EngineAddresses) -> None:
        self._targets = addresses
        self._whole = asyncio.Event()
        self._whole.set()
        self._servers: list[asyncio.Server] = []
        self._pumps: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    def cut(self) -> None:
        self._whole.clear()

    async def _forwarding_to(self, address: str) -> str:
        host, _, port = address.removeprefix("tcp://").rpartition(":")

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            self._writers += [writer, far_writer]
            for source, sink in ((reader, far_writer), (far_reader, writer)):
                self._pumps.append(asyncio.ensure_future(self._pump(source, sink)))

        server = await asyncio.start_server(forward, "127.0.0.1", 0)
        self._servers.append(server)
        return f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                await self._whole.wait()
                sink.write(data)
                await sink.drain()

    async def __aenter__(self) -> Self:
        self.addresses = EngineAddresses(
            inputs=[await self._forwarding_to(self._targets.inputs[0])],
            outputs=[await self._forwarding_to(self._targets.outputs[0])],
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._pumps:
            task.cancel()
        for writer in self._writers:
            writer.close()
        for server in self._servers:
            server.close()
