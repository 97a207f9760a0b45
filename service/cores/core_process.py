"""A core that runs as a child of the gateway."""

import socket

from service.cores.child_process import ChildProcess


class CoreLoadError(Exception):
    """The core did not become ready; the text says why."""


class CoreProcess(ChildProcess):
    """The core of ``rank``."""

    def __init__(
        self, command: tuple[str, ...], handshake_address: str, rank: int, tensors: socket.socket | None = None
    ) -> None:
        """Start ``command``, with the flags that lead it to its gateway. Raises CoreLoadError if it cannot start.

        ``tensors``: the receiver's end of a channel for large tensors, which the process inherits.
        """
        self.rank = rank
        flags = ["--local", "--handshake-address", handshake_address, "--data-parallel-rank", str(rank)]
        inherited_fds = []
        if tensors is not None:
            inherited_fds = [tensors.fileno()]
            flags += ["--tensor-ipc-fd", str(tensors.fileno())]
        try:
            super().__init__("core", [*command, *flags], inherited_fds)
        except OSError as error:
            raise CoreLoadError(f"cannot start the core {command[0]}: {error}") from error
