"""service.cli.pull: the command `sluicegate pull`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from service.cli.pull import pull
from service.models import ModelFiles


def test_pull_prints_where_the_model_is(smollm2_files: ModelFiles) -> None:
    """The folder alone on stdout, for scripts; a model that is there gives nothing to report."""
    result = CliRunner().invoke(pull, ["smollm2-135m"])
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{smollm2_files.tokenizer_folder}\n", "")


def test_unknown_name_is_told() -> None:
    """One line on stderr with the known names and the nearest of them, and exit code 1."""
    result = CliRunner().invoke(pull, ["smolm2"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: no model 'smolm2'")
    assert "smollm2-135m, gemma3-270m" in result.stderr
    assert result.stderr.endswith("; did you mean smollm2-135m?\n")


def test_model_that_cannot_be_fetched_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its name. Here the index is an empty folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    result = CliRunner().invoke(pull, ["gemma3-270m"])
    assert result.exit_code == 1
    assert "could not download gemma3-270m" in result.stderr
