"""Ranks that are threads of one process, over real sockets."""

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from core.executor.orders import Meeting
from core.executor.tensor_group import COLLECTIVE_TIMEOUT_S, DistributedTensorGroup


def on_each_rank(
    size: int, call: Callable[[DistributedTensorGroup], Any], timeout_s: float = COLLECTIVE_TIMEOUT_S
) -> list[Any]:
    """What ``call`` gives on every rank."""
    listener = socket.create_server(("127.0.0.1", 0))
    meeting = Meeting("127.0.0.1", listener.getsockname()[1], size)
    store_fd = listener.detach()  # The store's, from now on.

    def run(rank: int) -> Any:
        fd = store_fd if rank == 0 else None
        return call(DistributedTensorGroup(meeting, rank, torch.device("cpu"), fd, timeout_s=timeout_s))

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, range(size)))
