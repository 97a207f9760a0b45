"""The comparison of bounds on what a long prompt does to those who decode."""

from pathlib import Path

from click.testing import CliRunner

from bench.prefill_interference import main
from tests.core.model.tiny_model import TINY, TinyModel


def test_it_tells_of_each_setting_in_each_round(tmp_path: Path) -> None:
    """What the figures are is the machine's affair."""
    TinyModel(TINY).write_safetensors(tmp_path)
    options = ["--streams", "2", "--prompt-tokens", "40", "--rounds", "2", "--max-num-batched-tokens", "32"]
    result = CliRunner().invoke(main, [str(tmp_path), *options])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line[:12] for line in lines] == ["stretch 0.0:", "stretch 2.5:"] * 2
    assert all("quiet ITL" in line and "beside streams" in line for line in lines)
