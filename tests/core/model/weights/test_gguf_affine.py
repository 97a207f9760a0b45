"""Weights of a GGUF file that stay quantized are the ones the gguf package dequantizes."""

from itertools import pairwise

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Q
from numpy.typing import NDArray

from core.model.weights.gguf_affine import read_affine

GROUPS_AND_BITS = {
    Q.Q4_0: (32, 4),
    Q.Q4_1: (32, 4),
    Q.Q5_0: (32, 8),
    Q.Q5_1: (32, 8),
    Q.Q8_0: (32, 8),
    Q.Q2_K: (16, 4),
    Q.Q3_K: (16, 4),
    Q.Q4_K: (32, 4),
    Q.Q5_K: (32, 8),
    Q.Q6_K: (16, 8),
}
HALVES = {  # Where in a block its float16 numbers are.
    Q.Q4_0: (0,),
    Q.Q4_1: (0, 2),
    Q.Q5_0: (0,),
    Q.Q5_1: (0, 2),
    Q.Q8_0: (0,),
    Q.Q2_K: (80, 82),
    Q.Q3_K: (108,),
    Q.Q4_K: (0, 2),
    Q.Q5_K: (0, 2),
    Q.Q6_K: (208,),
}
EXTREMES = [0.0, -0.0, 6e-8, -6e-8, 6.1e-5, -1.0, 65504.0, -65504.0]


def random_rows(kind: Q, num_rows: int, num_columns: int, scales: list[float] | None = None) -> NDArray[np.uint8]:
    """uint8 [rows, bytes of a row]: any bytes, but scales and offsets that are finite, or of ``scales``."""
    rng = np.random.default_rng(0)
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (num_rows * num_columns // block_size, block_bytes), dtype=np.uint8)
    for place in HALVES[kind]:
        values = rng.standard_normal(len(blocks)) if scales is None else rng.choice(scales, len(blocks))
        blocks[:, place : place + 2] = values.astype(np.float16)[:, None].view(np.uint8)
    return blocks.reshape(num_rows, -1)


@pytest.mark.parametrize("kind", GROUPS_AND_BITS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("scales", [None, EXTREMES], ids=["random", "extreme"])
def test_weights_are_those_of_the_gguf_package(kind: Q, scales: list[float] | None) -> None:
    """Every one of them exactly, of all bytes there can be, and in more than one chunk."""
    rows = random_rows(kind, 700, 768, scales)
    affine = read_affine(rows, kind)
    assert affine is not None
    np.testing.assert_array_equal(affine.dense(), gguf.quants.dequantize(rows, kind))


@pytest.mark.parametrize(("kind", "group", "bits"), [(kind, *sizes) for kind, sizes in GROUPS_AND_BITS.items()])
def test_integers_use_the_bits_they_are_said_to(kind: Q, group: int, bits: int) -> None:
    """A kernel packs as many."""
    affine = read_affine(random_rows(kind, 3, 512), kind)
    assert affine is not None
    assert (affine.group, affine.bits) == (group, bits)
    assert (affine.quants.dtype, affine.quants.shape) == (np.uint8, (3, 512))
    for values in (affine.scales, affine.offsets):
        assert (values.dtype, values.shape) == (np.float32, (3, 512 // group))
    assert 3 <= affine.quants.max() < 16 if bits == 4 else affine.quants.max() > 15


@pytest.mark.parametrize("kind", GROUPS_AND_BITS, ids=lambda kind: kind.name)
def test_a_scale_that_is_no_number_spoils_its_block_alone(kind: Q) -> None:
    """As dequantizing it does."""
    rows = random_rows(kind, 40, 512, [1.0, np.inf, np.nan])
    with np.errstate(invalid="ignore"):
        affine, expected = read_affine(rows, kind), gguf.quants.dequantize(rows, kind)
        assert affine is not None
        weights = affine.dense()
    finite = np.isfinite(expected)
    assert finite.any()
    np.testing.assert_array_equal(np.isfinite(weights), finite)
    np.testing.assert_array_equal(weights[finite], expected[finite])


@pytest.mark.parametrize("kind", [Q.F32, Q.F16, Q.BF16, Q.IQ4_NL, Q.IQ4_XS, Q.IQ2_XXS, Q.MXFP4, Q.TQ2_0])
def test_other_kinds_are_not_affine(kind: Q) -> None:
    """Floats, values out of tables, and what is rare."""
    assert read_affine(np.zeros((2, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind) is None


@pytest.mark.parametrize("kind", [Q.Q4_1, Q.Q3_K, Q.Q4_K], ids=lambda kind: kind.name)
def test_parts_are_cut_and_joined(kind: Q) -> None:
    """By rows anywhere, by columns in multiples of 32 only, also inside of a block of the file."""
    affine = read_affine(random_rows(kind, 10, 512), kind)
    assert affine is not None
    weights = affine.dense()
    for dim, ends in ((0, (0, 3, 4, 10)), (1, (0, 32, 160, 512))):
        parts = [affine.part(dim, range(start, end)) for start, end in pairwise(ends)]
        assert all(parts)
        for part, expected in zip(parts, np.split(weights, ends[1:-1], dim), strict=True):
            assert all(values.flags.c_contiguous for values in (part.quants, part.scales, part.offsets))
            np.testing.assert_array_equal(part.dense(), expected)
        np.testing.assert_array_equal(affine.join(parts, dim).dense(), weights)
    for columns in (range(16, 64), range(64, 100)):
        assert affine.part(1, columns) is None
