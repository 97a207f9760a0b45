"""What the embedding engine asks of a model."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class EncoderInfo(NamedTuple):
    """``max_model_len`` in tokens; ``size``: elements of a vector; ``dtype`` of the computation."""

    max_model_len: int
    vocab_size: int
    size: int
    dtype: str
    is_normalized: bool
    """Whether the model's files ask for vectors of length 1."""


class Encoder(Protocol):
    """Owned by the busy loop."""

    @property
    def info(self) -> EncoderInfo: ...

    def encode(self, prompts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Vectors [prompts, size] of the tokens of each prompt, not normalized."""
        ...
