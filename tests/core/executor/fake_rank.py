"""Ranks without a model, which go wrong as their model's name says: ``python -m tests.core.executor.fake_rank FAULT``.

As a program it is a rank; ``… core FAULT`` is a core with two of them, which says their process ids and waits; and
``… host FAULT PORT`` is the second of two hosts, without a core, whose one rank dials the port.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

from core.config import ModelConfig
from core.executor.fake import FakeExecutor
from core.executor.interface import Executor
from core.executor.multi_process import MultiProcessExecutor
from core.executor.orders import Load
from core.executor.rank_process import RankPlace, rank_command
from core.executor.remote_ranks import run_ranks
from core.hosts import Hosts

MODULE = "tests.core.executor.fake_rank"
TWO_RANKS = Hosts(2)


def wait_forever(*_: object) -> NoReturn:
    """As in a collective whose other ranks do not come."""
    while True:
        threading.Event().wait()


def raise_on_rank_1(rank: int) -> None:
    if rank == 0:
        wait_forever()
    raise KeyError("nobody")


def make_fake_worker(load: Load, place: RankPlace) -> Executor:
    match place.model.name:
        case "hangs-in-steps":
            return FakeExecutor(on_step=wait_forever)
        case "raises-in-steps":
            return FakeExecutor(on_step=lambda _step: raise_on_rank_1(place.rank))
        case "interrupts-its-core":
            if place.rank == 1:
                os.kill(os.getppid(), signal.SIGINT)
            wait_forever()
        case "is-not-there":
            if place.rank == 0:
                wait_forever()
            raise ValueError(f"{place.model}: no such file, on rank {place.rank} of {load.meeting.size}")
    worker = FakeExecutor(kv_cache_bytes=1000 * (place.rank + 1))
    worker.loras.broken_paths = {f"broken-on-{place.rank}"}
    return worker


def fake_ranks(fault: str = "whole", hosts: Hosts = TWO_RANKS) -> MultiProcessExecutor:
    return MultiProcessExecutor(ModelConfig(Path(fault)), hosts, module=MODULE)


def two_hosts(node_rank: int, port: int) -> Hosts:
    """Both on this machine."""
    return Hosts(2, 2, node_rank, "127.0.0.1", port)


if __name__ == "__main__":
    if sys.argv[1] == "core":
        print(*fake_ranks(sys.argv[2]).pids.values(), flush=True)
        wait_forever()
    if sys.argv[1] == "host":
        sys.exit(run_ranks(Path(sys.argv[2]), two_hosts(1, int(sys.argv[3])), 0.0, MODULE))
    rank_command(make_fake_worker)()
