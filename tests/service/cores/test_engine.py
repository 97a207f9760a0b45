"""What cores say of themselves, alone and together."""

import msgspec
import pytest

from core.wire.codec import WireError
from core.wire.messages import EngineCoreOutput, EngineCoreOutputs
from core.wire.stats import SchedulerStats
from service.cores.engine import Engine, checked, combined, max_cached_tokens, max_num_tokens
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


def test_tokens_of_a_request() -> None:
    """As many as the context has, or as fit the KV cache and one more, which is never computed."""
    assert max_num_tokens(READY) == 1024
    assert max_num_tokens(msgspec.structs.replace(READY, kv_cache_size_tokens=64)) == 49


@pytest.mark.parametrize(("max_model_len", "may"), [(1024, True), (2048, True), (1023, False)])
def test_a_core_that_stands_in(max_model_len: int, may: bool) -> None:
    """Requests were checked against the context of the first; of memory it may have less."""
    engine = Engine(0)
    engine.check_can_stand_in(READY)
    engine.introduce(READY, 0)
    other = msgspec.structs.replace(READY, num_gpu_blocks=10, max_model_len=max_model_len)
    if may:
        engine.check_can_stand_in(other)
    else:
        with pytest.raises(WireError, match="can less than"):
            engine.check_can_stand_in(other)


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


def test_its_life() -> None:
    """What is lost is gone for good unless another is awaited; the other has nothing of it but the rank."""
    engine = Engine(0)
    states = [engine.state]
    engine.introduce(READY, 1)
    engine.record(EngineCoreOutputs(outputs=[EngineCoreOutput("a", [1])]))
    states.append(engine.state)
    engine.lose("it closed the connection", is_awaited=True)
    states.append(engine.state)
    assert (engine.was_useful, engine.is_gone_for_good, engine.connection) == (True, False, None)
    engine.introduce(READY, 1)
    states.append(engine.state)
    assert (engine.lost_because, engine.was_useful, engine.incarnation) == (None, False, 2)
    engine.lose("it closed the connection", is_awaited=False)
    assert [*states, engine.state] == ["absent", "ready", "awaited", "ready", "lost"]
    assert engine.is_gone_for_good
