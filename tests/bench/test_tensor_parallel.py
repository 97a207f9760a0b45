"""The comparison of ranks that share a model with one process."""

from pathlib import Path

from click.testing import CliRunner

from bench.tensor_parallel import main
from tests.core.model.tiny_model import TINY, TinyModel


def test_ranks_give_the_tokens_of_one_process(tmp_path: Path) -> None:
    """One line for each size; had the tokens differed it would say so and fail."""
    TinyModel(TINY).write_safetensors(tmp_path)
    result = CliRunner().invoke(main, [str(tmp_path), "--size", "1", "--size", "2"])
    assert result.exit_code == 0, result.output
    first, second = result.output.splitlines()
    assert first.startswith("1 ranks: the tokens to compare with; all at once ")
    assert second.startswith("2 ranks: 4 of 4 right; ")
