"""How far a model's distributions are from the reference's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from bench.quality.window import Logits

_ROWS_AT_ONCE = 64
"""In float64 a row of 49,152 has 400 KB."""


@dataclass
class Score:
    """Sums over the windows that were added."""

    divergences: list[float] = field(default_factory=list)
    """KL(reference ‖ model) of each row, in nats."""
    num_predicted: int = 0
    total_surprise: float = 0.0
    num_decisive: int = 0
    num_agreeing: int = 0

    def add(self, token_ids: Sequence[int], logits: Logits, reference: Logits) -> None:
        """``logits`` and ``reference`` [tokens, vocabulary]; row i is of what follows token i."""
        following = [*token_ids[1:], None]
        for start in range(0, len(token_ids), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            self._add_rows(following[rows], _log_probs(logits[rows]), _log_probs(reference[rows]))

    def _add_rows(self, following: Sequence[int | None], log_probs: torch.Tensor, reference: torch.Tensor) -> None:
        self.divergences += (reference.exp() * (reference - log_probs)).sum(-1).tolist()
        for token_id, row in zip(following, log_probs, strict=True):
            if token_id is not None:
                self.num_predicted += 1
                self.total_surprise -= float(row[token_id])

    def add_greedy(self, logits: Logits, decisive: Mapping[int, int]) -> None:
        """``decisive``: by row, the token that the reference chooses with a wide margin."""
        self.num_decisive += len(decisive)
        self.num_agreeing += sum(int(np.argmax(logits[row])) == token_id for row, token_id in decisive.items())

    @property
    def divergence(self) -> float:
        """Their mean. A model has tokens where a little changes much: one may be a third of it."""
        return float(np.mean(self.divergences))

    @property
    def median_divergence(self) -> float:
        return float(np.median(self.divergences))

    @property
    def perplexity(self) -> float:
        """Of each token, after those before it in its window."""
        return float(np.exp(self.total_surprise / self.num_predicted))


def _log_probs(logits: Logits) -> torch.Tensor:
    return torch.log_softmax(torch.from_numpy(logits).double(), dim=-1)
