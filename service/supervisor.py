"""The life of the core as the gateway sees it: start, load, watch, stop.

    gateway ── spawn ──▶ core      in a session of its own: Ctrl-C at the terminal is the gateway's to handle
            ── lifeline pipe ──▶   the gateway holds its end open and never writes; when it dies, however it dies,
                                   the core reads end-of-file and goes too
            ◀── stderr pipe ──     its log, passed on
            ◀── pidfd ──           its end, awaited and not polled
            ◀── HELLO, INIT, READY ──▶   core.wire.handshake

A core on another machine has no process here: its going is noticed on the connection (``EngineClient.lost``).
"""

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from core.wire.handshake import HandshakeError, HandshakeServer
from core.wire.messages import EngineReadyResponse
from service.config import CoreConfig
from service.core_log import CoreLog
from service.engine_client import EngineClient

logger = logging.getLogger(__name__)

_TERMINATE_GRACE_S = 5.0
"""How long a core may take over SIGTERM before it is killed."""


class CoreLoadError(Exception):
    """The core did not become ready; the text says why."""


class CoreProcess:
    """A core that runs as a child of this process."""

    def __init__(self, command: tuple[str, ...], handshake_address: str) -> None:
        """Start ``command``, with the flags that lead it to its gateway. Raises CoreLoadError if it cannot start."""
        lifeline, self._held_end = os.pipe()
        self._log = CoreLog()
        flags = ("--local", "--handshake-address", handshake_address, "--lifeline-fd", str(lifeline))
        try:
            # Not asyncio's: Popen's vfork runs none of the fork handlers that gRPC installs.
            self._process = subprocess.Popen(
                [*command, *flags],
                stdin=subprocess.DEVNULL,
                stderr=self._log.write_end,
                pass_fds=(lifeline,),
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._held_end)
            self._log.close()
            raise CoreLoadError(f"cannot start the core {command[0]}: {error}") from error
        finally:
            os.close(lifeline)
            self._log.hand_over()
        self._loop = asyncio.get_running_loop()
        self._exit_code: asyncio.Future[int] = self._loop.create_future()
        self._pid_fd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._pid_fd, self._reap)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_shut_down(self) -> bool:
        """The process has ended, and by itself: everything that it had accepted was answered."""
        return self._exit_code.done() and self._exit_code.result() == 0

    async def exited(self) -> str:
        """How the process ended, once it has: its exit code or the signal that killed it, and the error it logged."""
        code = await asyncio.shield(self._exit_code)
        end = f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.strsignal(-code)})"
        return f"{end}: {self._log.error}" if code and self._log.error else end

    async def stop(self) -> None:
        """End the process, by force after a grace time, and reap it."""
        self._process.terminate()
        try:
            await asyncio.wait_for(self.exited(), _TERMINATE_GRACE_S)
        except TimeoutError:
            logger.warning("core %d ignored SIGTERM for %g s: killed", self.pid, _TERMINATE_GRACE_S)
            self._process.kill()
            await self.exited()
        os.close(self._held_end)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pid_fd)
        os.close(self._pid_fd)
        self._log.close()
        self._exit_code.set_result(self._process.wait())


class Supervisor:
    """Gets a core for ``engine`` and tells ``engine`` when it is gone."""

    def __init__(self, config: CoreConfig, engine: EngineClient, folder: Path) -> None:
        """``folder`` is private to this gateway; a local core's handshake socket lies in it."""
        self._config = config
        self._engine = engine
        self._handshake_address = config.handshake_address or f"ipc://{folder}/handshake"
        self._process: CoreProcess | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def has_shut_down(self) -> bool:
        """The core was a process of ours and has ended well."""
        return self._process is not None and self._process.has_shut_down

    async def load(self) -> EngineReadyResponse:
        """Bring up the core and return what it says of itself. Raises CoreLoadError; the caller must still ``stop``."""
        try:
            server = self._engine.handshake(self._handshake_address, num_local_engines=int(self._config.is_local))
        except HandshakeError as error:
            raise CoreLoadError(str(error)) from error
        try:
            return await self._load(server)
        finally:
            server.close()

    async def stop(self) -> None:
        """End and reap the process, if there is one. From here on its end is no loss."""
        if self._watch is not None:
            self._watch.cancel()
        if self._process is not None:
            await self._process.stop()

    async def _load(self, server: HandshakeServer) -> EngineReadyResponse:
        if self._config.is_local:
            self._process = CoreProcess(self._config.command, server.address)
            logger.info("core started, pid %d", self._process.pid)
            self._watch = asyncio.create_task(self._lose_core_at_exit(self._process))
        else:
            logger.info("waiting for a core at %s", server.address)
        try:
            return await self._unless_lost(self._introduction(server))
        except HandshakeError as error:
            raise CoreLoadError(f"the core failed to load: {error}") from error

    async def _introduction(self, server: HandshakeServer) -> EngineReadyResponse:
        timeout_s = self._config.load_timeout_s
        await server.run(timeout_s)
        try:
            return await asyncio.wait_for(asyncio.shield(self._engine.ready), timeout_s)
        except TimeoutError:
            raise HandshakeError(f"it said READY, but sent no ready response within {timeout_s:g} s") from None

    async def _unless_lost(self, loading: Coroutine[Any, Any, EngineReadyResponse]) -> EngineReadyResponse:
        task = asyncio.ensure_future(loading)
        awaited: set[asyncio.Future[Any]] = {task, self._engine.lost}
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise CoreLoadError(f"the core failed to load: {self._engine.lost.result()}")
            return task.result()
        finally:
            task.cancel()

    async def _lose_core_at_exit(self, process: CoreProcess) -> None:
        end = await process.exited()
        self._engine.lose_core_after_last_words(f"its process {process.pid} ended with {end}")
