"""``python -m bench.step_overhead``: every part of a step, and the gap between two forwards."""

from pathlib import Path

from click.testing import CliRunner

from bench.step_overhead import main
from tests.core.model.tiny_model import TINY, TinyModel


def test_it_has_a_row_for_every_batch_and_sampling(tmp_path: Path) -> None:
    """In both tables, with a number in each column."""
    TinyModel(TINY).write_safetensors(tmp_path)
    result = CliRunner().invoke(main, [str(tmp_path), "--concurrency", "2", "--forward-ms", "0.1"])
    assert result.exit_code == 0, result.output
    parts, gaps = (table.splitlines() for table in result.output.strip().split("\n\n"))
    assert [row.split()[:2] for row in (*parts[1:], *gaps[1:])] == [["2", "greedy"], ["2", "random"]] * 2
    assert all(float(number) >= 0 for row in (*parts[1:], *gaps[1:]) for number in row.split()[2:])
