"""A process that lives no longer than the gateway.

gateway ── spawn ──▶ child     in a session of its own: Ctrl-C at the terminal is the gateway's to handle
        ── lifeline pipe ──▶   the gateway holds its end open and never writes; when it dies, however it dies,
                               the child reads end-of-file and goes too
        ◀── stderr pipe ──     its log, passed on
        ◀── pidfd ──           its end, awaited and not polled
"""

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from service.cores.core_log import CoreLog

logger = logging.getLogger(__name__)

_OUR_PREFIX = "SLUICEGATE_"


class ChildProcess:
    """``name`` is what log lines and errors call it."""

    def __init__(
        self, name: str, command: Sequence[str], inherited_fds: Sequence[int] = (), stdout: int | None = None
    ) -> None:
        """Start ``command`` with the flag of the lifeline. Raises OSError if it cannot start.

        ``stdout``: the write end of a pipe; None: the gateway's own.
        """
        self.name = name
        lifeline, held_end = os.pipe()
        self._held_end: int | None = held_end
        self._log = CoreLog()
        try:
            # Not asyncio's: Popen's vfork runs none of the fork handlers that gRPC installs.
            self._process = subprocess.Popen(
                [*command, "--lifeline-fd", str(lifeline)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=self._log.write_end,
                env=_own_environment(os.environ),
                pass_fds=(lifeline, *inherited_fds),
                start_new_session=True,
            )
        except OSError:
            self._end_lifeline()
            self._log.close()
            raise
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
    def has_ended(self) -> bool:
        return self._exit_code.done()

    @property
    def has_shut_down(self) -> bool:
        """The process has ended, and by itself: everything that it had accepted was answered."""
        return self._exit_code.done() and self._exit_code.result() == 0

    async def exited(self) -> str:
        """How the process ended, once it has: its exit code or the signal that killed it, and the error it logged."""
        code = await asyncio.shield(self._exit_code)
        end = f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.strsignal(-code)})"
        return f"{end}: {self._log.error}" if code and self._log.error else end

    async def stop(self, grace_s: float) -> None:
        """End the process with SIGTERM, by force after ``grace_s``, and reap it."""
        self._process.terminate()
        await self._end_within(grace_s)
        self._end_lifeline()

    def kill(self) -> None:
        """Without waiting for it to end; no more if it has."""
        if not self.has_ended:
            self._process.kill()

    async def end_by_force(self, grace_s: float) -> None:
        """Kill the process, and all of its group, unless it ends within ``grace_s``; reap it."""
        await asyncio.wait({self._exit_code}, timeout=grace_s)
        if not self.has_ended:
            logger.warning("%s %d is killed", self.name, self.pid)
            os.killpg(self.pid, signal.SIGKILL)  # It is not reaped, so that the number is nobody else's.
        await asyncio.shield(self._exit_code)
        self._end_lifeline()

    async def let_go(self, grace_s: float) -> None:
        """End the lifeline, by force after ``grace_s`` the process, and reap it."""
        self._end_lifeline()
        await self._end_within(grace_s)

    async def _end_within(self, grace_s: float) -> None:
        try:
            await asyncio.wait_for(self.exited(), grace_s)
        except TimeoutError:
            logger.warning("%s %d did not end within %g s: killed", self.name, self.pid, grace_s)
            self._process.kill()
            await self.exited()

    def _end_lifeline(self) -> None:
        """May be called twice."""
        if self._held_end is not None:
            os.close(self._held_end)
            self._held_end = None

    def _reap(self) -> None:
        self._loop.remove_reader(self._pid_fd)
        os.close(self._pid_fd)
        self._log.close()
        self._exit_code.set_result(self._process.wait())


def _own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without our variables: the flags tell the child all, and what is meant for one command is not for another."""
    return {name: value for name, value in environment.items() if not name.startswith(_OUR_PREFIX)}
