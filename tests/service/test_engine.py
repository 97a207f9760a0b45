"""What cores say of themselves, alone and together."""

import msgspec
import pytest

from core.wire.codec import WireError
from core.wire.messages import EngineCoreOutputs
from core.wire.stats import SchedulerStats
from service.engine import Engine, checked, combined, max_cached_tokens
from tests.service.fake_core import READY


def test_together() -> None:
    """Memories are added, the shortest context counts."""
    small = msgspec.structs.replace(READY, max_model_len=512, num_gpu_blocks=50, kv_cache_size_tokens=700)
    together = combined([READY, small])
    assert (together.max_model_len, together.num_gpu_blocks, together.data_parallel_size) == (512, 151, 2)
    assert together.kv_cache_size_tokens == 101 * 16 + 700
    assert combined([msgspec.structs.replace(small, data_parallel_size=4)]) == small


def test_cached_tokens() -> None:
    """What one request may hold: all but the null block."""
    assert max_cached_tokens(READY) == 100 * 16
    assert max_cached_tokens(msgspec.structs.replace(READY, kv_cache_size_tokens=64)) == 48


@pytest.mark.parametrize(
    ("served", "found", "may"), [(101, 101, True), (101, 70, True), (101, 64, False), (40, 40, True), (40, 39, False)]
)
def test_a_core_that_stands_in(served: int, found: int, may: bool) -> None:
    """It must take any request that the first would have taken, however few at once: here of 1024 tokens, in blocks."""
    engine = Engine(0)
    first, second = (msgspec.structs.replace(READY, num_gpu_blocks=count) for count in (served, found))
    engine.introduce(first, 0)
    if may:
        engine.introduce(second, 1)
    else:
        with pytest.raises(WireError, match="can less than"):
            engine.introduce(second, 1)


@pytest.mark.parametrize("size", [-1, 0, 2**63 - 1])
def test_sizes_that_no_cache_has(size: int) -> None:
    """A cache of so many tokens is none."""
    with pytest.raises(WireError, match=f"kv_cache_size_tokens: must be in .*, got {size}"):
        checked(msgspec.structs.replace(READY, kv_cache_size_tokens=size))


def test_load() -> None:
    """Four for each that waits, and what was sent since the statistics waits; one for each that runs."""
    engine = Engine(0)
    engine.record(EngineCoreOutputs(scheduler_stats=SchedulerStats(3, 2, 1)))
    engine.num_sent_since_stats += 2
    assert engine.load == 4 * (2 + 1 + 2) + 3
    engine.record(EngineCoreOutputs())
    assert engine.load == 4 * (2 + 1 + 2) + 3
    engine.record(EngineCoreOutputs(scheduler_stats=SchedulerStats(5)))
    assert engine.load == 5


def test_successor_must_do_what_is_served() -> None:
    """Requests were checked against what its predecessor said."""
    engine = Engine(0)
    engine.introduce(READY, 1)
    engine.introduce(msgspec.structs.replace(READY, max_model_len=2048), 2)
    with pytest.raises(WireError, match="less than"):
        engine.introduce(READY, 3)
    assert engine.connection == 2
