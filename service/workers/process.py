"""A worker as the primary holds it: a child process, and the channel to it."""

import socket
from collections.abc import Sequence

from service.cores.child_process import ChildProcess
from service.workers.channel import Channel, Handlers


class WorkerError(Exception):
    """A process of the gateway did not become ready; the text says why."""


class WorkerProcess(ChildProcess):
    """``channel`` leads to it."""

    def __init__(self, command: Sequence[str], number: int, counts_fd: int) -> None:
        """Start ``command``, with the flags that lead it to this process. Raises WorkerError if it cannot start."""
        self._ours, theirs = socket.socketpair()
        fds = theirs.fileno(), counts_fd
        flags = "--number", str(number), "--channel-fd", str(fds[0]), "--counts-fd", str(fds[1])
        try:
            super().__init__(f"gateway worker {number}", [*command, *flags], fds)
        except OSError as error:
            self._ours.close()
            raise WorkerError(f"cannot start a gateway worker {command[0]}: {error}") from error
        finally:
            theirs.close()

    async def open_channel(self, handlers: Handlers) -> Channel:
        """Once. ``handlers``: what the worker may call."""
        return await Channel.over(self._ours, handlers)
