"""The rule for the KV cache's size, by its numbers."""

from core.executor.memory_left import MemoryLeft

GIB, MIB = 1 << 30, 1 << 20


def on_cpu(free: int, sharing: int = 1, weights: int = 0, step: int = 0, layers: int = 30) -> MemoryLeft:
    return MemoryLeft.of(False, free, sharing, weights, step, layers)


def test_half_of_a_host_and_most_of_a_gpu() -> None:
    """Less two layers' copies of thirty."""
    assert on_cpu(6400 * MIB).kv_cache_bytes == 3000 * MIB
    assert MemoryLeft.of(True, 6400 * MIB, 1, 0, 0, 30).kv_cache_bytes == 5400 * MIB


def test_a_host_gives_no_more_than_4_gib_unasked() -> None:
    """A GPU gives all it has."""
    assert on_cpu(100 * GIB).kv_cache_bytes == 4 * GIB
    assert MemoryLeft.of(True, 64 * GIB, 1, 0, 0, 30).kv_cache_bytes == 54 * GIB


def test_those_who_share_a_host_get_equal_parts() -> None:
    """Before anything of one's own is subtracted."""
    assert on_cpu(6400 * MIB, sharing=2).kv_cache_bytes == 1500 * MIB
    assert on_cpu(6400 * MIB, sharing=2, weights=1600 * MIB).kv_cache_bytes == 750 * MIB


def test_weights_to_come_and_the_largest_step_are_left_free() -> None:
    """Of what is given unasked, and of what may be asked for."""
    left = on_cpu(8000 * MIB, weights=1000 * MIB, step=600 * MIB)
    assert left.kv_cache_bytes == 3000 * MIB
    assert left.most_bytes == 6400 * MIB


def test_few_layers_make_larger_copies() -> None:
    """Of three layers attention copies up to two thirds of what is kept."""
    assert on_cpu(5000 * MIB, layers=3).kv_cache_bytes == 1500 * MIB


def test_where_nothing_is_left_there_is_nothing() -> None:
    """Never less."""
    left = on_cpu(GIB, weights=2 * GIB)
    assert (left.kv_cache_bytes, left.most_bytes) == (0, 0)


def test_it_says_its_numbers() -> None:
    """In the line that the engine logs, and in its refusals."""
    assert str(on_cpu(8000 * MIB, 2, 1000 * MIB, 600 * MIB)) == (
        "8000 MiB free, shared by 2, 1000 MiB for weights to come, 600 MiB for a step; "
        "by default 50 % of the rest, at most 4096 MiB"
    )
