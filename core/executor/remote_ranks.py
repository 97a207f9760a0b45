"""The ranks of other hosts: how they find the core, and what a host does that only runs ranks."""

import contextlib
import logging
import signal
import socket
import time
from collections.abc import Collection, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import setproctitle

from core.executor.channel import Channel, as_connection, listen
from core.executor.orders import Hello
from core.executor.rank_children import RANK_MODULE, RankChildren
from core.hosts import Hosts

logger = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 600.0
"""Hosts start in any order, and may have an image to fetch first."""
_HELLO_TIMEOUT_S = 5.0
_MAX_HELLO_BYTES = 1024
_END_TIMEOUT_S = 5.0
"""When one rank of a host has ended, the others do too, or are ended."""


def accept_ranks(hosts: Hosts, timeout_s: float = JOIN_TIMEOUT_S) -> "dict[int, Connection[Any, Any]]":
    """The connections of the ranks of other hosts, once all have come.

    Raises ValueError if nobody could reach us at ``master_addr``, TimeoutError if a rank does not come in time.
    """
    place = f"{hosts.master_addr}:{hosts.master_port}"
    try:
        listener = listen(hosts.master_addr, hosts.master_port)
    except OSError as error:
        raise ValueError(f"master_addr: cannot listen at {place}: {error}") from error
    awaited, found, deadline = set(hosts.ranks_elsewhere), {}, time.monotonic() + timeout_s
    logger.info("waiting at %s for ranks %s of other hosts", place, sorted(awaited))
    with listener:
        while awaited:
            listener.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                rank, connection = _accept(listener, awaited, hosts.tensor_parallel_size)
            except TimeoutError:
                raise TimeoutError(f"ranks {sorted(awaited)} have not come to {place} in {timeout_s:g} s") from None
            if connection is not None:
                awaited.remove(rank)
                found[rank] = connection
    return found


def _accept(listener: socket.socket, awaited: Collection[int], size: int) -> "tuple[int, Connection[Any, Any] | None]":
    """Whoever comes next; None if it is none of those awaited. Raises TimeoutError if nobody comes."""
    stream, address = listener.accept()
    connection = as_connection(stream)
    channel = Channel(connection, Hello)
    with contextlib.suppress(Exception):
        if channel.has_input_within(_HELLO_TIMEOUT_S):
            hello = channel.receive(_MAX_HELLO_BYTES)
            if hello.rank in awaited and hello.size == size:
                return hello.rank, connection
            logger.warning("refused rank %d of %d, from %s: there are %d", hello.rank, hello.size, address[0], size)
    connection.close()
    return -1, None


def run_ranks(model: Path, hosts: Hosts, shutdown_timeout_s: float, module: str = RANK_MODULE) -> int:
    """Run the ranks of a host that has no core, until the core ends them: the exit code.

    0 if the core had them end, 1 if the core or one of them was lost. SIGTERM ends them after ``shutdown_timeout_s``:
    they are needed while the core lets requests run to their end. ``module`` is what a rank runs.
    """
    setproctitle.setproctitle(f"sluicegate: ranks of host {hosts.node_rank}")
    children = RankChildren(model, module)
    with _ended_by_signals(shutdown_timeout_s), contextlib.ExitStack() as cleanup:
        cleanup.callback(children.join, 0)
        for rank in hosts.ranks_here:
            control = ["--control-host", hosts.master_addr, "--control-port", str(hosts.master_port)]
            children.start(rank, [*control, "--size", str(hosts.tensor_parallel_size)])
        logger.info("ranks %s of the core at %s:%d", list(hosts.ranks_here), hosts.master_addr, hosts.master_port)
        children.first_end(None)
        codes = children.join(_END_TIMEOUT_S)
    logger.info("the ranks have ended: exit codes %s", codes)
    return int(any(codes))


@contextlib.contextmanager
def _ended_by_signals(timeout_s: float) -> Iterator[None]:
    """SystemExit, ``timeout_s`` after SIGTERM or SIGINT."""

    def end(signum: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + (signal.SIGTERM if signum == signal.SIGALRM else signum))

    def end_later(signum: int, frame: FrameType | None) -> None:
        if timeout_s <= 0:
            end(signum, frame)
        logger.info("signal %d: going on for the core's sake, for at most %g s", signum, timeout_s)
        signal.setitimer(signal.ITIMER_REAL, timeout_s)

    for signum, handler in ((signal.SIGALRM, end), (signal.SIGTERM, end_later), (signal.SIGINT, end_later)):
        signal.signal(signum, handler)
    yield
