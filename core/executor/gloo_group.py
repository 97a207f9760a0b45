"""The ranks of a lockstep group, each in a process of its own, over torch's gloo."""

from collections.abc import Sequence
from typing import Any

import torch

from core.data_parallel.rank_group import RankGroupError
from core.executor.process_group import dist, join_gloo, open_store

JOIN_TIMEOUT_S = 600.0
"""The ranks come as they have loaded their models."""
AGREE_TIMEOUT_S = 300.0
"""A rank that is gone is noticed at once; this one is there and does not answer."""


class GlooRankGroup:
    """A group of its own, apart from whatever groups the executor has. Rank 0 listens for the others.

    Raises RankGroupError if a rank does not come in time, or rank 0 cannot listen at ``host`` and ``port``.
    """

    def __init__(self, host: str, port: int, rank: int, size: int, join_timeout_s: float = JOIN_TIMEOUT_S) -> None:
        self.rank = rank
        self.size = size
        try:
            # On rank 0 the store serves the others for as long as this object lives.
            self._store: Any = open_store(host, port, rank, size, join_timeout_s)
            self._group: Any = join_gloo(self._store, "lockstep", rank, size, AGREE_TIMEOUT_S)
        except RuntimeError as error:
            raise RankGroupError(f"rank {rank} of {size} cannot join the group at {host}:{port}: {error}") from error

    def all_reduce_max(self, values: Sequence[int]) -> list[int]:
        """As RankGroup has it."""
        if self._group is None:
            raise RankGroupError(f"rank {self.rank} has left the group")
        options: Any = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        tensor = torch.tensor(values, dtype=torch.int64)
        try:
            self._group.allreduce([tensor], options).wait()
        except RuntimeError as error:
            raise RankGroupError(f"the ranks cannot agree: {error}") from error
        return [int(value) for value in tensor]

    def close(self) -> None:
        """As RankGroup has it."""
        self._group = self._store = None
