"""The coordinator of cores that step in lockstep: a child of the gateway. See ``core.wire.waves`` for what it says."""

import asyncio
import os
from pathlib import Path

import msgspec

from core.wire.waves import CoordinatorAddresses
from service.cores.child_process import ChildProcess
from service.cores.core_process import CoreLoadError

_GRACE_S = 5.0
"""How long it may take over the end of its lifeline: it has nothing to finish."""


class CoordinatorProcess(ChildProcess):
    """Started when made; it serves when ``addresses`` returns."""

    def __init__(self, command: tuple[str, ...], num_engines: int, folder: Path, host: str | None) -> None:
        """It listens on tcp at ``host``, or on ipc sockets in ``folder``. Raises CoreLoadError if it cannot start."""
        where = ("--folder", str(folder)) if host is None else ("--host", host)
        self._said, write_end = os.pipe()
        try:
            super().__init__("coordinator", [*command, "--num-engines", str(num_engines), *where], stdout=write_end)
        except OSError as error:
            os.close(self._said)
            raise CoreLoadError(f"cannot start the coordinator {command[0]}: {error}") from error
        finally:
            os.close(write_end)

    async def addresses(self) -> CoordinatorAddresses:
        """Where it listens. Raises CoreLoadError if it ends without a word, or says something else."""
        line = await self._first_line()
        if not line:
            raise CoreLoadError(
                f"the coordinator failed to start: its process {self.pid} ended with {await self.exited()}"
            )
        try:
            return msgspec.json.decode(line, type=CoordinatorAddresses)
        except msgspec.DecodeError as error:
            raise CoreLoadError(f"the coordinator does not say where it listens, but {line!r}: {error}") from error

    async def end(self) -> None:
        """End and reap it, when no core needs it any more. It takes no signals: see its ``--lifeline-fd``."""
        await self.let_go(_GRACE_S)

    async def _first_line(self) -> bytes:
        reader = asyncio.StreamReader()
        said = os.fdopen(self._said, "rb", buffering=0)
        transport, _ = await self._loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), said)
        try:
            return await reader.readline()
        finally:
            transport.close()
