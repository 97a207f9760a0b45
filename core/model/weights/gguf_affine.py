"""GGUF's blocks that are affine in small integers, taken apart without computing their weights.

All formats but those that look their values up in a table (IQ*, MXFP4, NVFP4) or are ternary (TQ*). The weights are
those of ggml's dequantize_row_*, to the last bit: an integer times its scale fits into float32 exactly.
Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
"""

from collections.abc import Callable
from dataclasses import dataclass

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray

from core.model.weights.affine_rows import AffineRows

_CHUNK_WEIGHTS = 1 << 18
"""Taken apart together, while they are in the cache."""

_Bytes = NDArray[np.uint8]
_Floats = NDArray[np.float32]
_Blocks = NDArray[np.void]
_Parts = tuple[_Bytes, _Floats, _Floats]
"""Of n blocks: quants [n, weights of a block], scales and offsets [n, groups of a block]."""


def read_affine(rows: _Bytes, kind: Kind) -> AffineRows | None:
    """Of rows uint8 [rows, bytes of a row] as the file has them; None for a kind that is not affine."""
    if kind not in _FORMATS:
        return None
    form, (block_size, block_bytes) = _FORMATS[kind], gguf.GGML_QUANT_SIZES[kind]
    blocks: _Blocks = rows.reshape(-1, block_bytes).view(form.layout).ravel()
    quants = np.empty((len(blocks), block_size), np.uint8)
    scales, offsets = np.empty((2, len(blocks), block_size // form.group), np.float32)
    step = _CHUNK_WEIGHTS // block_size
    for start in range(0, len(blocks), step):
        chunk = slice(start, start + step)
        quants[chunk], scales[chunk], offsets[chunk] = form.read(blocks[chunk])
    return AffineRows(
        quants.reshape(len(rows), -1),
        scales.reshape(len(rows), -1),
        offsets.reshape(len(rows), -1),
        form.group,
        form.bits,
    )


def _read_q4_0(blocks: _Blocks) -> _Parts:
    return _centred(_fields(blocks["low"], 4, 16), _column(blocks["d"]), 8)


def _read_q4_1(blocks: _Blocks) -> _Parts:
    return _fields(blocks["low"], 4, 16), _column(blocks["d"]), _column(blocks["m"])


def _read_q5_0(blocks: _Blocks) -> _Parts:
    return _centred(_five_bits(blocks), _column(blocks["d"]), 16)


def _read_q5_1(blocks: _Blocks) -> _Parts:
    return _five_bits(blocks), _column(blocks["d"]), _column(blocks["m"])


def _read_q8_0(blocks: _Blocks) -> _Parts:
    # 128 more than a signed byte: the same bits but for the first.
    return _centred(blocks["signed"] ^ np.uint8(128), _column(blocks["d"]), 128)


def _read_q2_k(blocks: _Blocks) -> _Parts:
    scales = blocks["scales"]
    return _fields(blocks["low"], 2, 32), _column(blocks["d"]) * (scales & 15), -_column(blocks["dmin"]) * (scales >> 4)


def _read_q3_k(blocks: _Blocks) -> _Parts:
    low, high = np.split(blocks["scales"], [8], axis=-1)
    scales = _fields(low, 4, 8) | _fields(high, 2, 4) << np.uint8(4)
    quants = _fields(blocks["low"], 2, 32) | _fields(blocks["high"], 1, 32) << np.uint8(2)
    return _centred(quants, _column(blocks["d"]) * (scales.view(np.int8) - 32), 4)


def _read_q4_k(blocks: _Blocks) -> _Parts:
    return _fields(blocks["low"], 4, 32), *_scales_and_minima(blocks)


def _read_q5_k(blocks: _Blocks) -> _Parts:
    quants = _fields(blocks["low"], 4, 32) | _fields(blocks["high"], 1, 32) << np.uint8(4)
    return quants, *_scales_and_minima(blocks)


def _read_q6_k(blocks: _Blocks) -> _Parts:
    quants = _fields(blocks["low"], 4, 64) | _fields(blocks["high"], 2, 32) << np.uint8(4)
    return _centred(quants, _column(blocks["d"]) * blocks["scales"], 32)


def _fields(packed: _Bytes, bits: int, run: int) -> _Bytes:
    """[n, bytes] as [n, bytes * 8 / bits]: of each ``run`` of bytes the lowest ``bits`` of all, then the next ones."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    runs = packed.reshape(len(packed), -1, 1, run) >> shifts & np.uint8(2**bits - 1)
    return runs.reshape(len(packed), -1)


def _five_bits(blocks: _Blocks) -> _Bytes:
    fifth = np.unpackbits(blocks["high"], axis=-1, bitorder="little")
    return _fields(blocks["low"], 4, 16) | fifth << np.uint8(4)


def _column(halves: NDArray[np.float16]) -> _Floats:
    return halves.astype(np.float32)[:, None]


def _centred(quants: _Bytes, scales: _Floats, zero: int) -> _Parts:
    """``scales * (quants - zero)``."""
    return quants, scales, scales * np.float32(-zero)


def _scales_and_minima(blocks: _Blocks) -> tuple[_Floats, _Floats]:
    scales, minima = gguf.quants.Q4_K.get_scale_min(blocks["scales"])
    return _column(blocks["d"]) * scales, -_column(blocks["dmin"]) * minima


@dataclass(frozen=True)
class _Format:
    group: int
    bits: int
    read: Callable[[_Blocks], _Parts]
    layout: np.dtype[np.void]


def _format(group: int, bits: int, read: Callable[[_Blocks], _Parts], **fields: str) -> _Format:
    """``fields`` are those of a block in their order, with their numpy types."""
    return _Format(group, bits, read, np.dtype(list(fields.items())))


_FORMATS = {
    Kind.Q4_0: _format(32, 4, _read_q4_0, d="f2", low="16u1"),
    Kind.Q4_1: _format(32, 4, _read_q4_1, d="f2", m="f2", low="16u1"),
    Kind.Q5_0: _format(32, 8, _read_q5_0, d="f2", high="4u1", low="16u1"),
    Kind.Q5_1: _format(32, 8, _read_q5_1, d="f2", m="f2", high="4u1", low="16u1"),
    Kind.Q8_0: _format(32, 8, _read_q8_0, d="f2", signed="32u1"),
    Kind.Q2_K: _format(16, 4, _read_q2_k, scales="16u1", low="64u1", d="f2", dmin="f2"),
    Kind.Q3_K: _format(16, 4, _read_q3_k, high="32u1", low="64u1", scales="12u1", d="f2"),
    Kind.Q4_K: _format(32, 4, _read_q4_k, d="f2", dmin="f2", scales="12u1", low="128u1"),
    Kind.Q5_K: _format(32, 8, _read_q5_k, d="f2", dmin="f2", scales="12u1", high="32u1", low="128u1"),
    Kind.Q6_K: _format(16, 8, _read_q6_k, low="128u1", high="64u1", scales="16i1", d="f2"),
}
