"""Rotary position embedding, on halves of a head as Hugging Face lays them out."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from core.model.architecture import Llama3Scaling, Rope


class Rotation(NamedTuple):
    """One step's angles: ``cosine`` and ``signed_sine`` [tokens, 1, head_size], the sine's first half negated."""

    cosine: Tensor
    signed_sine: Tensor

    @classmethod
    def of(cls, positions: Tensor, frequencies: Tensor, dtype: torch.dtype) -> "Rotation":
        """``positions`` [tokens] times ``frequencies`` [head_size / 2], in float32."""
        angles = (positions[:, None].float() * frequencies)[:, None, :]
        cosine, sine = angles.cos(), angles.sin()
        return cls(torch.cat((cosine, cosine), -1).to(dtype), torch.cat((-sine, sine), -1).to(dtype))

    def apply(self, heads: Tensor) -> Tensor:
        """Rotate ``heads`` [tokens, heads, head_size]."""
        half = heads.shape[-1] // 2
        return torch.addcmul(heads * self.cosine, heads.roll(half, -1), self.signed_sine)


def rope_frequencies(rope: Rope, head_size: int, factors: Tensor | None = None) -> Tensor:
    """float32 [head_size / 2]; each is divided by its entry in ``factors``, if the model file brings some."""
    exponents = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
    frequencies = 1.0 / rope.theta**exponents / rope.linear_factor
    if factors is not None:
        return frequencies / factors
    return frequencies if rope.llama3 is None else _scale_llama3(frequencies, rope.llama3)


def _scale_llama3(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    """High frequencies stay, low ones are divided, those between are interpolated.

    Source: ``apply_scaling`` in github.com/meta-llama/llama-models, models/llama3/model.py.
    """
    turns = scaling.original_max_len * frequencies / (2 * math.pi)
    keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    keep = keep.clamp(0, 1)
    return frequencies * (keep + (1 - keep) / scaling.factor)
