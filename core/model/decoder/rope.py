"""Rotary position embedding, on halves of a head as Hugging Face lays them out."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from core.model.architecture import Llama3Scaling, Rope, YarnScaling


class Rotation(NamedTuple):
    """One step's angles: ``cosine`` and ``signed_sine`` [tokens, 1, head_size], the sine's first half negated."""

    cosine: Tensor
    signed_sine: Tensor

    @classmethod
    def of(cls, positions: Tensor, frequencies: Tensor, dtype: torch.dtype, scale: float = 1.0) -> "Rotation":
        """``positions`` [tokens] times ``frequencies`` [head_size / 2], in float32; what is turned, is scaled too."""
        angles = (positions[:, None].float() * frequencies)[:, None, :]
        cosine, sine = angles.cos(), angles.sin()
        if scale != 1.0:
            cosine, sine = cosine * scale, sine * scale
        return cls(torch.cat((cosine, cosine), -1).to(dtype), torch.cat((-sine, sine), -1).to(dtype))

    def apply(self, heads: Tensor) -> Tensor:
        """Rotate ``heads`` [tokens, heads, head_size]."""
        half = heads.shape[-1] // 2
        return torch.addcmul(heads * self.cosine, heads.roll(half, -1), self.signed_sine)


class Ropes:
    """The rotations of all layers; ``by_layer`` has one rope for each, and layers with the same share a rotation."""

    def __init__(self, by_layer: Sequence[Rope], head_size: int, factors: Tensor | None, device: torch.device) -> None:
        different = list(dict.fromkeys(by_layer))
        self.places = [different.index(rope) for rope in by_layer]
        """For each layer, which of the different ones is its."""
        self._frequencies = [rope_frequencies(rope, head_size, factors).to(device) for rope in different]
        self._scales = [_attention_factor(rope.yarn) if rope.yarn else 1.0 for rope in different]

    @property
    def different(self) -> list[tuple[Tensor, float]]:
        """The frequencies [head_size / 2] of each, and what cosine and sine are multiplied by."""
        return list(zip(self._frequencies, self._scales, strict=True))

    def at(self, positions: Tensor, dtype: torch.dtype) -> list[Rotation]:
        """One for each layer."""
        different = [Rotation.of(positions, frequencies, dtype, scale) for frequencies, scale in self.different]
        return [different[place] for place in self.places]


def rope_frequencies(rope: Rope, head_size: int, factors: Tensor | None = None) -> Tensor:
    """float32 [head_size / 2]; each is divided by its entry in ``factors``, if the model file brings some."""
    exponents = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
    frequencies = 1.0 / rope.theta**exponents / rope.linear_factor
    if factors is not None:
        return frequencies / factors
    if rope.yarn is not None:
        return _scale_yarn(frequencies, rope.theta, rope.yarn)
    return frequencies if rope.llama3 is None else _scale_llama3(frequencies, rope.llama3)


def _scale_llama3(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    """High frequencies stay, low ones are divided, those between are interpolated.

    Source: ``apply_scaling`` in github.com/meta-llama/llama-models, models/llama3/model.py.
    """
    turns = scaling.original_max_len * frequencies / (2 * math.pi)
    keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return _stretch(frequencies, keep.clamp(0, 1), scaling.factor)


def _scale_yarn(frequencies: Tensor, theta: float, scaling: YarnScaling) -> Tensor:
    """The same, interpolated along the index of the frequency.

    Source: arxiv.org/abs/2309.00071, section 3.2, with the bounds rounded outwards as its authors' code does.
    """
    size = 2 * len(frequencies)

    def index_of(turns: float) -> float:
        return size * math.log(scaling.original_max_len / (2 * math.pi * turns)) / (2 * math.log(theta))

    first = max(math.floor(index_of(scaling.beta_fast)), 0)
    last = min(math.ceil(index_of(scaling.beta_slow)), size - 1)
    keep = 1 - ((torch.arange(len(frequencies)) - first) / max(last - first, 1e-3)).clamp(0, 1)
    return _stretch(frequencies, keep, scaling.factor)


def _stretch(frequencies: Tensor, keep: Tensor, factor: float) -> Tensor:
    return frequencies * (keep + (1 - keep) / factor)


def _attention_factor(scaling: YarnScaling) -> float:
    """Source: the same paper, section 3.4, the square root of its equation 22."""
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    return 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0
