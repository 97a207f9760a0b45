"""What the machine allows, on figures that can be done in the head."""

import pytest

from bench.peers.limits import Limits, ModelSize, Rates
from bench.peers.peer import Family
from bench.workload import Workload
from tests.model_files import find_smollm2

RATES = Rates(read_bytes_per_s=1e9, float32_flops=1e12, int8_ops=4e12)
MODEL = ModelSize(
    num_layers=10, query_size=100, key_value_size=50, body_weights=90_000_000, head_weights=10_000_000, file_bytes=10**8
)
FLOAT32, QUANTIZED = (Limits(family, RATES, MODEL) for family in Family)


def test_a_step_of_one_row_reads_every_weight() -> None:
    """4 bytes each in float32, as the file has them when quantized."""
    assert FLOAT32.step_s(1, 0) == pytest.approx(0.4)
    assert QUANTIZED.step_s(1, 0) == pytest.approx(0.1)


def test_the_context_is_read_too() -> None:
    """2·50·10 numbers a token, of 4 bytes or 2."""
    assert FLOAT32.step_s(10, 1000) == pytest.approx(0.4 + 0.04)
    assert QUANTIZED.step_s(10, 1000) == pytest.approx(0.1 + 0.02)


def test_many_rows_are_bound_by_their_multiplications() -> None:
    """10,000 times 0.2 GFLOP."""
    assert FLOAT32.step_s(10_000, 0) == pytest.approx(2.0)
    assert QUANTIZED.step_s(10_000, 0) == pytest.approx(0.5)


def test_a_prompt_needs_the_head_once_and_attention_for_every_pair() -> None:
    """180 MFLOP a token, 20 for the answer, 4,000 for each of half a square of pairs."""
    operations = 10_000 * 1.8e8 + 2e7 + 4_000 * 10_000 * 10_001 / 2
    assert FLOAT32.prefill_s(10_000) == pytest.approx(operations / 1e12)


def test_a_shared_prefix_is_computed_once() -> None:
    """And not at all when it is cached."""
    load = Workload("x", 10_100, 1, 4, concurrency=4, shared_prefix_tokens=10_000)
    assert FLOAT32.wave_s(load) == pytest.approx(FLOAT32.prefill_s(10_000) + FLOAT32.prefill_s(100, 10_000, 4))
    assert FLOAT32.wave_s(load, is_cached=True) == pytest.approx(FLOAT32.prefill_s(100, 10_000, 4))


def test_the_size_of_a_model() -> None:
    """135 million weights, of which the vocabulary's serve twice, as input and as output."""
    size = ModelSize.of(find_smollm2())
    assert (size.num_layers, size.query_size, size.key_value_size) == (30, 576, 192)
    assert size.head_weights == 49152 * 576
    assert size.body_weights + size.head_weights == 134_479_872
