"""Random draws that depend on (seed, position, vocabulary index) and on nothing else.

A generator's state depends on how often it was used; a hash of a counter does not. So a request draws the same
tokens alone or in a batch, after preemption, and when another process takes it over. Only integer arithmetic that
wraps is used, so that every device gives the same bits.

Per row, SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) turns seed and position into a 64-bit key; per vocabulary
index, two rounds of a 32-bit mixer (Chris Wellons, nullprogram.com/blog/2018/07/31, the constants with the lowest
bias) take one half of the key each. Two rounds of 32 bits cost a fifteenth of one SplitMix64 per vocabulary entry.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = 0x21F0AAAD
_MULTIPLIER_2 = 0xD35A2D97
_POSITIVE = 0x7FFFFFFF
_BELOW_ONE = 1 - 2.0**-24


def draw_keys(seeds: NDArray[np.uint64], positions: NDArray[np.uint64]) -> NDArray[np.int32]:
    """int32 [rows, 2]: each row's 64-bit key, halved."""
    keys = _split_mix(_split_mix(seeds) + positions)
    return keys.view(np.int32).reshape(-1, 2)


def gumbel_noise(keys: Tensor, token_ids: Tensor) -> Tensor:
    """float32 [rows, tokens] of independent standard Gumbel variables, for ``keys`` int32 [rows, 2].

    ``token_ids`` int32 [tokens] or [rows, tokens]: the indices in the vocabulary.

    -log(E) with E exponential: the row's maximum of logits + noise is a draw from their softmax. The uniform
    variable's precision is kept where E is small, because that is where the winners are.
    """
    if keys.device.type == "cpu":
        bits = torch.from_numpy(_numpy_bits(keys.numpy().view(np.uint32), token_ids.numpy().view(np.uint32)))
    else:
        bits = _bits(keys, token_ids)
    uniform = bits.to(torch.float32).add_(0.5).mul_(2.0**-31).clamp_max_(_BELOW_ONE)
    return uniform.neg_().log1p_().neg_().log_().neg_()


def _split_mix(states: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = states + _GOLDEN_GAMMA
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _bits(keys: Tensor, token_ids: Tensor) -> Tensor:
    """int32 [rows, tokens], none negative."""
    bits = _mix(token_ids ^ keys[:, :1]).add_(keys[:, 1:])
    return _mix(bits) & _POSITIVE


def _mix(bits: Tensor) -> Tensor:
    """A bijection of int32, in place. The masks make the shifts logical."""
    bits ^= (bits >> 16) & 0xFFFF
    bits *= _MULTIPLIER_1
    bits ^= (bits >> 15) & 0x1FFFF
    bits *= _MULTIPLIER_2 - (1 << 32)
    bits ^= (bits >> 15) & 0x1FFFF
    return bits


def _numpy_bits(keys: NDArray[np.uint32], token_ids: NDArray[np.uint32]) -> NDArray[np.int32]:
    """As ``_bits``, in a third of its time: unsigned numbers need no masks, and nothing is allocated between."""
    bits = token_ids ^ keys[:, :1]
    shifted = np.empty_like(bits)
    _numpy_mix(bits, shifted)
    bits += keys[:, 1:]
    _numpy_mix(bits, shifted)
    bits &= np.uint32(_POSITIVE)
    return bits.view(np.int32)


def _numpy_mix(bits: NDArray[np.uint32], shifted: NDArray[np.uint32]) -> None:
    """In place; what is in ``shifted`` is lost."""
    for shift, multiplier in ((16, _MULTIPLIER_1), (15, _MULTIPLIER_2)):
        bits ^= np.right_shift(bits, np.uint32(shift), out=shifted)
        bits *= np.uint32(multiplier)
    bits ^= np.right_shift(bits, np.uint32(15), out=shifted)
