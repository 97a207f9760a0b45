"""What became of a core's drafts since the start."""

from collections import Counter
from dataclasses import dataclass, field

from core.wire.stats import SpecDecodingStats

_MAX_COUNT = 2**32 - 1
_MAX_POSITIONS = 256
"""Each has a series of its own in what is exposed."""


@dataclass
class DraftTotals:
    """Counts of steps, each of which is taken as one in [0, 2**32 - 1], whatever the core says."""

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_tokens_per_pos: Counter[int] = field(default_factory=Counter)
    """By position in the draft, from 0."""

    def add(self, stats: SpecDecodingStats) -> None:
        """Take in one step."""
        self.num_drafts += _sensible(stats.num_drafts)
        self.num_draft_tokens += _sensible(stats.num_draft_tokens)
        self.num_accepted_tokens += _sensible(stats.num_accepted_tokens)
        for position, count in enumerate(stats.num_accepted_tokens_per_pos[:_MAX_POSITIONS]):
            self.num_accepted_tokens_per_pos[position] += _sensible(count)


def _sensible(count: int) -> int:
    return min(max(count, 0), _MAX_COUNT)
