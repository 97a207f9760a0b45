"""Which core gets a request. Pure: neither sockets nor clock.

The load of a rank is 4 x waiting + running sequences: as its last statistics have it, and every sequence sent since
counts as waiting. Of the ranks that can be chosen

1. one that the request names is taken, whatever its load;
2. else, of the ranks that have computed the longest known beginning of the prompt (see ``PrefixMemory``), the one with
   the lowest load, unless it is clearly busier than the least busy of all: load > lowest + max(8, lowest / 2), which is
   two waiting sequences or eight running ones more, and of a high load half as much again;
3. else the one with the lowest load. Of equals the first wins, counted from a place that moves on with every choice.
"""

from collections.abc import Hashable, Mapping, Sequence

from service.cores.prefix_memory import PrefixMemory

_FREE_EXCESS = 8


class LoadBalancer:
    """Remembers what was sent where. For one rank there is nothing to choose, and nothing to remember."""

    def __init__(self, num_ranks: int, memory: PrefixMemory) -> None:
        self._num_ranks = num_ranks
        self._memory = memory
        self._next = 0

    def choose(
        self,
        loads: Mapping[int, int],
        prompt_token_ids: Sequence[int],
        salt: Hashable = None,
        pinned: int | None = None,
    ) -> int:
        """The rank for a request, out of those in ``loads``; ``pinned`` must be one of them if it is given.

        ``salt`` tells prompts apart that are alike and yet share no blocks.
        """
        if self._num_ranks == 1:
            return 0
        keys = self._memory.keys_of(prompt_token_ids, salt)
        rank = pinned if pinned is not None else self._best(loads, self._memory.ranks_with(keys))
        self._memory.remember(keys, rank)
        return rank

    def forget(self, rank: int) -> None:
        """The prefix cache of ``rank`` is empty now."""
        self._memory.forget(rank)

    def _best(self, loads: Mapping[int, int], ranks_with_prefix: int) -> int:
        self._next = (self._next + 1) % self._num_ranks
        in_turn = sorted(loads, key=lambda rank: (rank - self._next) % self._num_ranks)
        least_busy = min(in_turn, key=loads.__getitem__)
        warm = [rank for rank in in_turn if ranks_with_prefix >> rank & 1]
        if not warm:
            return least_busy
        warmest = min(warm, key=loads.__getitem__)
        return least_busy if is_clearly_busier(loads[warmest], loads[least_busy]) else warmest


def is_clearly_busier(load: int, lowest: int) -> bool:
    """Whether a warm prefix is not worth the wait."""
    return load > lowest + max(_FREE_EXCESS, lowest // 2)
