"""Products of rows with quantized and dense matrices: right, and the same bits however they are computed."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Q
from numpy.typing import NDArray

from core.model.weights.affine_rows import AffineRows
from core.model.weights.gguf_affine import read_affine
from core.native.kernels import Floats, Kernels
from tests.core.model.weights.test_gguf_affine import GROUPS_AND_BITS, random_rows
from tests.core.native.quantized_product import (
    EPSILON,
    FORMATS,
    Format,
    expected_product,
    make_linear,
    multiply,
    pack,
    product,
    random_activations,
)

SHAPES = [(1, 32), (15, 96), (16, 576), (17, 64), (50, 640), (192, 576), (40, 1536), (33, 2048)]
NUM_ROWS = (1, 2, 3, 5, 8, 9, 31, 70)


def check(result: NDArray[np.float32], expected: NDArray[np.float64], bound: NDArray[np.float64]) -> None:
    assert np.isfinite(result).all()
    worst = (np.abs(result - expected) - bound).max()
    assert worst <= 0, f"{worst} over the bound"


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_products_are_those_of_rounded_activations(kernels: Kernels, form: Format) -> None:
    """To the accuracy of float32 sums; one byte that is off by one would be more."""
    for num_outputs, num_inputs in SHAPES:
        matrix, activations = form.random(num_outputs, num_inputs), random_activations(max(NUM_ROWS), num_inputs)
        linear, (expected, bound) = make_linear(kernels, matrix), expected_product(activations, matrix)
        for num_rows in NUM_ROWS:
            check(multiply(linear, activations[:num_rows]), expected[:num_rows], bound[:num_rows])


@pytest.mark.parametrize("kind", GROUPS_AND_BITS, ids=lambda kind: kind.name)
def test_matrices_of_gguf_files(kernels: Kernels, kind: Q) -> None:
    """All kinds, near the products of their dequantized weights."""
    matrix = read_affine(random_rows(kind, 50, 768), kind)
    assert matrix is not None
    activations = random_activations(9, 768)
    result = product(kernels, activations, matrix)
    check(result, *expected_product(activations, matrix))
    exact = activations.astype(np.float64) @ matrix.dense().astype(np.float64).T
    assert np.linalg.norm(result - exact) < 0.01 * np.linalg.norm(exact)


def extreme_activations(name: str) -> Floats:
    activations = random_activations(6, 96)
    if name == "zeros":
        activations[::2] = 0
        activations[1, :40] = -0.0
    elif name == "outlier":
        activations[2, 33], activations[4, 95] = 1e6, -3e4
    elif name == "equal":
        activations[:] = np.where(np.arange(96) < 48, 3.0, -3.0)
    elif name == "large":
        activations *= np.float32(1e30)
    elif name == "small":
        activations *= np.float32(1e-30)
    return activations


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("name", ["zeros", "outlier", "equal", "large", "small"])
def test_extreme_activations(kernels: Kernels, form: Format, name: str) -> None:
    """Zeros, a single large one, the largest bytes of one sign, and floats near their limits."""
    matrix, activations = form.random(20, 96), extreme_activations(name)
    check(product(kernels, activations, matrix), *expected_product(activations, matrix))


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_activations_below_all_normal_floats_are_as_good_as_zero(kernels: Kernels, form: Format) -> None:
    """They may be rounded to zero, never to something larger."""
    matrix, activations = form.random(20, 96, scale=1.0), random_activations(4, 96)
    activations[1:] *= np.array([[1e-36], [1e-38], [1e-40]], np.float32)
    result = product(kernels, activations, matrix)
    check(result[:1], *expected_product(activations[:1], matrix))
    exact = activations.astype(np.float64) @ matrix.dense().astype(np.float64).T
    assert (np.abs(result - exact)[1:] < 1e-33).all()


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("quant", ["largest", "smallest"])
def test_the_largest_sums_of_bytes_do_not_overflow(kernels: Kernels, form: Format, quant: str) -> None:
    """All of one sign, in all places of a register."""
    random = form.random(20, 640)
    value = 2**form.bits - 1 if quant == "largest" else 0
    matrix = AffineRows(np.full_like(random.quants, value), random.scales, random.offsets, form.group, form.bits)
    activations = np.full((5, 640), 1.0, np.float32)
    activations[1] = -1.0
    activations[2, ::2] = -1.0
    check(product(kernels, activations, matrix), *expected_product(activations, matrix))


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("size", ["smallest", "largest"])
def test_extreme_scales(kernels: Kernels, form: Format, size: str) -> None:
    """Those that halves just hold, and those that only floats do."""
    halves, floats = {"smallest": 2.0**-24, "largest": 65504.0}, {"smallest": 1e-30, "largest": 1e30}
    random = form.random(20, 96, scale=1.0)
    scales = np.copysign((halves if form.has_half_scales else floats)[size], random.scales).astype(np.float32)
    offsets = scales[::-1].copy() if form.zero_point is None else scales * np.float32(-form.zero_point)
    matrix = AffineRows(random.quants, scales, offsets, form.group, form.bits)
    activations = random_activations(5, 96)
    check(product(kernels, activations, matrix), *expected_product(activations, matrix))


def test_a_row_of_zeros_gives_zeros(kernels: Kernels) -> None:
    """Not NaN, which a scale of zero would make of it."""
    for form in FORMATS:
        assert not product(kernels, np.zeros((3, 96), np.float32), form.random(20, 96)).any()


@pytest.mark.parametrize("form", [*FORMATS, None], ids=str)
def test_what_is_no_number_stays_in_its_row(kernels: Kernels, form: Format | None) -> None:
    """All that a quantized matrix makes of the row is NaN; the others are the same bits as without it."""
    matrix = form.random(50, 96) if form else random_activations(50, 96)
    linear, activations = make_linear(kernels, matrix), random_activations(11, 96)
    expected, others = multiply(linear, activations), [row for row in range(11) if row != 5]
    for bad, place in itertools.product((np.nan, np.inf, -np.inf), (0, 17, 63, 95)):
        spoiled = activations.copy()
        spoiled[5, place] = bad
        result = multiply(linear, spoiled)
        np.testing.assert_array_equal(result[others], expected[others])
        assert np.isnan(result[5]).all() if form else not np.isfinite(result[5]).any()


@pytest.mark.parametrize("form", [*FORMATS, None], ids=str)
def test_a_row_gives_the_same_bits_in_every_batch(kernels: Kernels, form: Format | None) -> None:
    """Alone, and in every place of 1 to 70 and of 300 rows."""
    matrix = form.random(50, 96) if form else random_activations(50, 96)
    linear, activations = make_linear(kernels, matrix), random_activations(300, 96)
    alone = np.concatenate([multiply(linear, activations[row : row + 1]) for row in range(300)])
    for num_rows in (*range(1, 71), 300):
        np.testing.assert_array_equal(multiply(linear, activations[:num_rows]), alone[:num_rows])
        np.testing.assert_array_equal(multiply(linear, activations[-num_rows:]), alone[-num_rows:])


@pytest.mark.parametrize("form", [*FORMATS, None], ids=str)
@pytest.mark.parametrize(("num_outputs", "num_inputs"), [(50, 96), (192, 576), (33, 2048)])
def test_every_instruction_set_gives_the_same_bits(
    all_kernels: list[Kernels], form: Format | None, num_outputs: int, num_inputs: int
) -> None:
    """So that cores on different machines may take over from each other."""
    matrix = form.random(num_outputs, num_inputs) if form else random_activations(num_outputs, num_inputs)
    activations = random_activations(9, num_inputs)
    activations[3, 5], activations[4, :64] = 1e5, 0
    bias = random_activations(1, num_outputs)[0]
    first, *others = (product(kernels, activations, matrix, bias=bias) for kernels in all_kernels)
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize(("num_outputs", "num_inputs"), [*SHAPES, (7, 1), (64, 33)])
def test_dense_products(kernels: Kernels, num_outputs: int, num_inputs: int) -> None:
    """To the accuracy of float32 sums, for any number of inputs."""
    weights = random_activations(num_outputs, num_inputs, seed=2)
    linear = make_linear(kernels, weights)
    for num_rows in NUM_ROWS:
        activations = random_activations(num_rows, num_inputs)
        x, w = activations.astype(np.float64), weights.astype(np.float64)
        check(multiply(linear, activations), x @ w.T, (num_inputs + 1) * EPSILON * (np.abs(x) @ np.abs(w).T))


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("num_rows", [1, 7, 100])
def test_matrices_side_by_side(kernels: Kernels, num_rows: int, has_bias: bool) -> None:
    """Of any formats and sizes: each gives what it gives alone, plus its part of the bias."""
    matrices: list[AffineRows | Floats] = [form.random(5 + 11 * i, 96, seed=i) for i, form in enumerate(FORMATS)]
    matrices.insert(3, random_activations(19, 96, seed=2))
    activations = random_activations(num_rows, 96)
    alone = np.concatenate([product(kernels, activations, matrix) for matrix in matrices], axis=1)
    bias = random_activations(1, alone.shape[1], seed=3)[0] if has_bias else None
    result = product(kernels, activations, *matrices, bias=bias)
    np.testing.assert_array_equal(result, alone if bias is None else alone + bias)


def test_no_rows(kernels: Kernels) -> None:
    """Nothing is computed."""
    assert product(kernels, np.empty((0, 96), np.float32), FORMATS[0].random(5, 96)).shape == (0, 5)


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_memory_is_that_of_the_quants_and_their_scales(kernels: Kernels, form: Format) -> None:
    """No more: that is what decoding reads for each token. Only four bits in groups of 16 are kept as eight."""
    num_outputs, num_inputs = 64, 576
    matrix = pack(kernels, form.random(num_outputs, num_inputs))
    assert (matrix.num_outputs, matrix.num_inputs) == (num_outputs, num_inputs)
    bits = form.bits if form.group == 32 else 8
    scale_bits = (16 if form.has_half_scales else 32) * (2 if form.zero_point is None else 1)
    assert matrix.num_bytes == num_outputs * num_inputs * (bits + scale_bits / form.group) / 8


def test_memory_of_dense_matrices(kernels: Kernels) -> None:
    """Four bytes a weight."""
    assert pack(kernels, random_activations(64, 96)).num_bytes == 64 * 96 * 4


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_threads_share_the_work_and_change_no_bit(kernels: Kernels, num_threads: int) -> None:
    """Few rows and many."""
    matrices = [FORMATS[0].random(700, 576), random_activations(300, 576, seed=2)]
    linear, activations = make_linear(kernels, *matrices), random_activations(300, 576)
    kernels.set_num_threads(1)
    expected = multiply(linear, activations)
    try:
        kernels.set_num_threads(num_threads)
        for num_rows in (1, 2, 17, 97, 300):
            np.testing.assert_array_equal(multiply(linear, activations[:num_rows]), expected[:num_rows])
    finally:
        kernels.set_num_threads(1)


def test_callers_do_not_disturb_each_other(kernels: Kernels) -> None:
    """Ranks that are threads of one process multiply at the same time, and a model that is loaded sets the threads."""
    linear, activations = make_linear(kernels, FORMATS[0].random(200, 576)), random_activations(40, 576)
    batches = [activations[first : first + 1 + first % 7] for first in range(30)]
    expected = [multiply(linear, batch) for batch in batches]

    def multiply_nth(i: int) -> Floats:
        if i % 50 == 0:
            kernels.set_num_threads(2 + i // 50 % 2)
        return multiply(linear, batches[i % 30])

    try:
        with ThreadPoolExecutor(4) as callers:
            results = list(callers.map(multiply_nth, range(600)))
    finally:
        kernels.set_num_threads(1)
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, expected[i % 30])


def test_arrays_that_do_not_fit_are_refused(kernels: Kernels) -> None:
    """With ValueError for a shape or number, and TypeError for what would have to be converted."""
    matrix, rows, outputs = FORMATS[0].random(5, 96), random_activations(3, 96), np.zeros((3, 5), np.float32)
    linear = make_linear(kernels, matrix)
    for bad_rows, bad_outputs in (
        (rows[0], outputs),
        (rows[:, :64].copy(), outputs),
        (rows, outputs[:2].copy()),
        (rows, outputs[:, :4].copy()),
    ):
        with pytest.raises(ValueError, match="shape"):
            linear.multiply(bad_rows, bad_outputs)
    for bad_rows, bad_outputs in ((rows.astype(np.float64), outputs), (random_activations(3, 192)[:, ::2], outputs)):
        with pytest.raises(TypeError):
            linear.multiply(bad_rows, bad_outputs)
    quants, scales, offsets = matrix.quants, matrix.scales, matrix.offsets
    for arguments in (
        (quants, scales, offsets, 64, 4),
        (quants, scales, offsets, 32, 5),
        (quants, scales, offsets, 16, 4),
        (quants, scales[:4].copy(), offsets, 32, 4),
        (quants[:, :48].copy(), scales, offsets, 32, 4),
        (quants[:, :0].copy(), scales[:, :0].copy(), offsets[:, :0].copy(), 32, 4),
        (quants[0], scales, offsets, 32, 4),
    ):
        with pytest.raises(ValueError, match=r"must|shape"):
            kernels.pack_affine(*arguments)
    with pytest.raises(ValueError, match="bias has a wrong shape"):
        make_linear(kernels, matrix, bias=np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="the same inputs"):
        make_linear(kernels, matrix, FORMATS[0].random(5, 64))
    with pytest.raises(ValueError, match="must have a matrix"):
        make_linear(kernels)
    with pytest.raises(ValueError, match="must have a matrix"):
        kernels.Linear([None])  # type: ignore[list-item]
