"""How a snapshot is cut."""

import pytest

from service.kv_events.batches import MAX_BLOCKS_PER_CHUNK, KnownBlock, chunks_of

BLOCK = KnownBlock(b"h", None, [1], 1, None, None, None, None, None, None, None, None)


@pytest.mark.parametrize(
    ("last_number", "num_blocks", "count"),
    [(0, 0, 1), (5, 1, 1), (0, 5000, 1), (2, 5000, 3), (10**6, 5000, -(-5000 // MAX_BLOCKS_PER_CHUNK))],
)
def test_chunks(last_number: int, num_blocks: int, count: int) -> None:
    """All blocks in their order, under numbers that end with the last batch and never begin before batch 0."""
    chunks = [*chunks_of(3, last_number, num_blocks, [BLOCK] * num_blocks, 7)]
    assert [chunk.number for chunk in chunks] == [*range(last_number - count + 1, last_number + 1)]
    assert [chunk.index for chunk in chunks] == [*range(count)]
    assert sum(len(chunk.blocks) for chunk in chunks) == num_blocks
    assert {(chunk.rank, chunk.count, chunk.num_blocks, chunk.num_unknown_batches) for chunk in chunks} == {
        (3, count, num_blocks, 7)
    }
