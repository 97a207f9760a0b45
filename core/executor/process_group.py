"""torch's process groups, made one by one: no global state, so that a process may be in several."""

from datetime import timedelta
from typing import Any

import torch.distributed

# Not all that torch documents here is in its type stubs.
dist: Any = torch.distributed


def open_store(
    host: str, port: int, rank: int, size: int, timeout_s: float, listen_fd: int | None = None, waits: bool = True
) -> Any:
    """Where ranks find each other. On rank 0 it serves the others, on ``listen_fd`` if given, while it lives.

    ``waits``: return when all have come. Raises RuntimeError if rank 0 cannot listen or one does not come in time.
    """
    timeout = timedelta(seconds=timeout_s)
    return dist.TCPStore(host, port, size, rank == 0, timeout, wait_for_workers=waits, master_listen_fd=listen_fd)


def join_gloo(store: Any, name: str, rank: int, size: int, timeout_s: float, host: str | None = None) -> Any:
    """A gloo group. ``host``: this rank's own address, at which the others reach it; None: what its name resolves to.

    Raises RuntimeError if a rank does not come in time.
    """
    gloo = dist.ProcessGroupGloo
    options = gloo._Options()
    options._timeout = timedelta(seconds=timeout_s)
    options._devices = [gloo.create_default_device() if host is None else gloo.create_device(hostname=host)]
    return gloo(dist.PrefixStore(name, store), rank, size, options)


def join_nccl(store: Any, name: str, rank: int, size: int, timeout_s: float) -> Any:
    """A group of GPUs."""
    nccl = dist.ProcessGroupNCCL
    options = nccl.Options()
    options._timeout = timedelta(seconds=timeout_s)
    return nccl(dist.PrefixStore(name, store), rank, size, options)
