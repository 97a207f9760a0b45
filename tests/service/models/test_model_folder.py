"""service.models.model_folder: JSON files that may be missing and must be objects."""

from pathlib import Path

import pytest

from service.models import ModelError
from service.models.model_folder import read_config, read_json


def test_missing_file_is_empty(tmp_path: Path) -> None:
    """A folder need not have them all."""
    assert read_json(tmp_path / "config.json") == {}
    assert read_config(tmp_path) == {}


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"3"])
def test_what_is_no_object_is_named(tmp_path: Path, content: bytes) -> None:
    """With its path."""
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        read_json(tmp_path / "config.json")


def test_language_model_s_part_of_a_multimodal_configuration_goes_first(tmp_path: Path) -> None:
    """text_config over the rest."""
    (tmp_path / "config.json").write_text('{"vocab_size": 1, "a": 2, "text_config": {"vocab_size": 3}}')
    config = read_config(tmp_path)
    assert (config["vocab_size"], config["a"]) == (3, 2)
