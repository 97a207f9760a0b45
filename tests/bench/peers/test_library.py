"""A driver with an engine that is a loop, run as the real ones are."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench.peers.library import Driver
from bench.peers.peer import PeerError
from bench.peers.process import peak_memory_bytes, running
from bench.workload import Workload

TREE = Path(__file__).parents[3]
LOAD = Workload("x", prompt_tokens=3, output_tokens=4, num_requests=3, concurrency=2)
PROMPTS = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
ENGINE = """
from bench.peers.drivers.serving import serve

def generate(batch):
    print("libraries print")
    for _ in range(batch.output_tokens):
        for record in batch.records:
            record.note(1)

serve(generate)
"""


@asynccontextmanager
async def driver(script: str, log: Path) -> AsyncIterator[Driver]:
    async with running([sys.executable, "-c", script], log, {"PYTHONPATH": str(TREE)}, with_pipes=True) as process:
        yield Driver("x", process, log)


async def test_every_request_has_a_record(tmp_path: Path) -> None:
    """With all its tokens; a batch begins when the one before it has ended."""
    async with driver(ENGINE, tmp_path / "log") as engine:
        assert await engine.answer() == {"ready": True}
        first, second, third = await engine.run(LOAD, PROMPTS)
        assert peak_memory_bytes(engine.pid)
    assert [record.num_output_tokens for record in (first, second, third)] == [4, 4, 4]
    assert first.num_prompt_tokens == 3
    assert first.start == second.start <= first.arrivals[0][0] <= first.end <= third.start
    assert "libraries print" in (tmp_path / "log").read_text()


async def test_an_engine_that_ends(tmp_path: Path) -> None:
    """Its last words are in the error."""
    async with driver("raise SystemExit('no such model')", tmp_path / "log") as engine:
        with pytest.raises(PeerError, match="no such model"):
            await engine.answer()
