"""The comparison with and without drafts."""

from pathlib import Path

from click.testing import CliRunner
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from bench.speculation import main
from tests.core.model.tiny_model import TINY, TinyModel


def test_it_compares_equal_answers(tmp_path: Path) -> None:
    """One line for each kind of question; had the tokens differed it would say so and fail."""
    TinyModel(TINY).write_safetensors(tmp_path)
    Tokenizer(WordLevel({"?": 7}, unk_token="?")).save(str(tmp_path / "tokenizer.json"))
    sizes = ["--kind", "copy", "--kind", "prose", "--concurrency", "2", "--tokens", "12", "--pairs", "1"]
    result = CliRunner().invoke(main, [str(tmp_path), *sizes])
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.output.splitlines()] == ["copy", "prose"]
    assert result.output.count("tokens/s, ratio") == 2
