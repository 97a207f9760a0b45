"""Whether a core is one of a lockstep group, and its way into the group."""

import contextlib
import logging
from collections.abc import Iterator

import setproctitle

from core.data_parallel.lockstep_loop import Group
from core.data_parallel.rank_group import RankGroup
from core.data_parallel.waves import EngineWave
from core.engine_interface import Engine
from core.wire.messages import EngineInit, ParallelConfig

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def joined_group(engine: Engine, init: EngineInit, rank: int) -> Iterator[Group | None]:
    """The group, once all its ranks have come; None if this core is independent of others, as most models' are.

    Raises ValueError if INIT does not say where they meet, RankGroupError if one does not come.
    """
    if engine.lockstep is None or init.parallel_config.data_parallel_size == 1:
        yield None
        return
    ranks = _join(init.parallel_config, rank)
    setproctitle.setproctitle(f"sluicegate: EngineCore_DP{rank}")
    try:
        yield Group(engine.lockstep, ranks, EngineWave(), init.addresses.coordinator_output is not None)
    finally:
        ranks.close()


def _join(config: ParallelConfig, rank: int) -> RankGroup:
    from core.executor.gloo_group import GlooRankGroup  # Brings in torch, which most cores' start does without.

    size, host, port = config.data_parallel_size, config.data_parallel_master_ip, _port(config)
    if not 0 <= rank < size:
        raise ValueError(f"data_parallel_rank must be in [0, {size - 1}], got {rank}")
    if host is None or port is None:
        told = f"data_parallel_master_ip {host} and port {port}"
        raise ValueError(f"the model's {size} ranks run in lockstep: INIT must say where they meet, it says {told}")
    logger.info("rank %d of %d waits for the others at %s:%d", rank, size, host, port)
    return GlooRankGroup(host, port, rank, size)


def _port(config: ParallelConfig) -> int | None:
    """The last of the ports that were kept free for groups; else the one that was agreed on for all purposes."""
    ports = config.data_parallel_master_port_list
    return ports[-1] if ports else config.data_parallel_master_port
