"""The comparison of one and two steps in flight."""

from pathlib import Path

from click.testing import CliRunner

from bench.async_scheduling import main
from tests.core.model.tiny_model import TINY, TinyModel


def test_it_compares_equal_answers(tmp_path: Path) -> None:
    """One line for each pair, then the median; had the tokens differed it would say so and fail."""
    TinyModel(TINY).write_safetensors(tmp_path)
    result = CliRunner().invoke(main, [str(tmp_path), "--concurrency", "3", "--tokens", "4", "--pairs", "2"])
    assert result.exit_code == 0, result.output
    *pairs, median = result.output.splitlines()
    assert [line.count("ratio") for line in pairs] == [1, 1]
    assert median.startswith("median ratio ")
