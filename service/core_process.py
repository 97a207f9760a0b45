"""A core that runs as a child of the gateway."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Mapping

from service.core_log import CoreLog

logger = logging.getLogger(__name__)

_OUR_PREFIX = "SLUICEGATE_"


class CoreLoadError(Exception):
    """The core did not become ready; the text says why."""


class CoreProcess:
    """A core that runs as a child of this process."""

    def __init__(
        self,
        command: tuple[str, ...],
        handshake_address: str,
        rank: int,
        terminate_grace_s: float,
        tensors: socket.socket | None = None,
    ) -> None:
        """Start ``command``, with the flags that lead it to its gateway. Raises CoreLoadError if it cannot start.

        ``tensors``: the receiver's end of a channel for large tensors, which the process inherits.
        """
        self.rank = rank
        self._terminate_grace_s = terminate_grace_s
        lifeline, self._held_end = os.pipe()
        self._log = CoreLog()
        flags = (
            *("--local", "--handshake-address", handshake_address),
            *("--data-parallel-rank", str(rank), "--lifeline-fd", str(lifeline)),
            *(() if tensors is None else ("--tensor-ipc-fd", str(tensors.fileno()))),
        )
        try:
            # Not asyncio's: Popen's vfork runs none of the fork handlers that gRPC installs.
            self._process = subprocess.Popen(
                [*command, *flags],
                stdin=subprocess.DEVNULL,
                stderr=self._log.write_end,
                env=_own_environment(os.environ),
                pass_fds=(lifeline,) if tensors is None else (lifeline, tensors.fileno()),
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
            await asyncio.wait_for(self.exited(), self._terminate_grace_s)
        except TimeoutError:
            logger.warning("core %d ignored SIGTERM for %g s: killed", self.pid, self._terminate_grace_s)
            self._process.kill()
            await self.exited()
        os.close(self._held_end)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pid_fd)
        os.close(self._pid_fd)
        self._log.close()
        self._exit_code.set_result(self._process.wait())


def _own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without our variables: the flags tell the core all, and what is meant for one command is not for another."""
    return {name: value for name, value in environment.items() if not name.startswith(_OUR_PREFIX)}
