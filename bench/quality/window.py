"""A run of tokens, and what is asked of a model about it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Window:
    """The first ``num_together`` tokens are computed in one pass, as a prompt is, the others one by one."""

    token_ids: Sequence[int]
    num_together: int

    def passes(self) -> Iterator[range]:
        """The positions of each pass."""
        yield range(self.num_together)
        for position in range(self.num_together, len(self.token_ids)):
            yield range(position, position + 1)


class LanguageModel(Protocol):
    """Whose distributions are compared."""

    def logits(self, window: Window) -> Logits:
        """[tokens, vocabulary]: row i is of what follows the tokens up to i."""
