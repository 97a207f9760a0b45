"""service.models.resolve: what a user may call a model, and what is said to what is none."""

import os
import threading
from pathlib import Path

import pytest

from service.models import ModelError, ModelFiles, Progress, cache_folder, resolve_model
from service.models.gguf_folder import WRITTEN_FILES
from service.text.tokenizer import Tokenizer
from tests.service.models.tiny_gguf import byte_level_metadata, sentencepiece_metadata, write_gguf


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _ignore(progress: Progress) -> None:
    """Nobody watches."""


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    return write_gguf(tmp_path / "mine" / "tiny.gguf", **byte_level_metadata())


def test_known_name_is_a_folder_of_the_cache(smollm2_files: ModelFiles) -> None:
    """The core gets the file, the gateway the folder."""
    assert smollm2_files.name == "smollm2-135m"
    assert smollm2_files.path.parent == smollm2_files.tokenizer_folder
    assert smollm2_files.tokenizer_folder.parts[-3:] == ("sluicegate", "models", "smollm2-135m")


def test_cache_is_where_xdg_says(tmp_path: Path) -> None:
    """$XDG_CACHE_HOME/sluicegate."""
    assert cache_folder() == tmp_path / "cache" / "sluicegate"


def test_gguf_file_gets_its_tokenizer_in_the_cache(gguf: Path) -> None:
    """Its own folder is left alone; a second time nothing is made."""
    files = resolve_model(str(gguf), _ignore)
    assert (files.name, files.path) == ("tiny", gguf)
    assert {path.name for path in files.tokenizer_folder.iterdir()} == set(WRITTEN_FILES)
    assert cache_folder() in files.tokenizer_folder.parents
    assert [path.name for path in gguf.parent.iterdir()] == ["tiny.gguf"]
    reports: list[Progress] = []
    assert resolve_model(str(gguf), reports.append) == files
    assert reports == []


def test_changed_gguf_file_gets_a_new_tokenizer(gguf: Path) -> None:
    """The same path with other contents is another model."""
    before = resolve_model(str(gguf), _ignore)
    write_gguf(gguf, **sentencepiece_metadata())
    os.utime(gguf, ns=(1, 1))
    after = resolve_model(str(gguf), _ignore)
    assert before.tokenizer_folder != after.tokenizer_folder
    assert Tokenizer.load(after.tokenizer_folder).encode("ab")[0] == 1


def test_folder_with_one_gguf_is_that_file(gguf: Path) -> None:
    """Under the folder's name; with the tokenizer that lies beside it, if there is one."""
    files = resolve_model(str(gguf.parent), _ignore)
    assert (files.name, files.path) == ("mine", gguf)
    for name in WRITTEN_FILES:
        (gguf.parent / name).write_bytes((files.tokenizer_folder / name).read_bytes())
    assert resolve_model(str(gguf.parent), _ignore).tokenizer_folder == gguf.parent


def test_folder_with_safetensors_is_given_as_it_is(tmp_path: Path) -> None:
    """Also by a path that ends in a slash or a dot."""
    folder = tmp_path / "llama"
    folder.mkdir()
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).touch()
    for path in (str(folder), f"{folder}/", f"{folder}/."):
        assert resolve_model(path, _ignore) == ModelFiles("llama", Path(path), Path(path))


def test_folder_with_safetensors_needs_a_tokenizer(tmp_path: Path) -> None:
    """Named."""
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError, match=r"lacks one of tokenizer\.json, tokenizer_config\.json"):
        resolve_model(str(tmp_path), _ignore)


def test_folder_with_several_ggufs_asks_which(gguf: Path) -> None:
    """And an empty one says what it should hold."""
    (gguf.parent / "other.gguf").touch()
    with pytest.raises(ModelError, match=r"it has other\.gguf, tiny\.gguf: name the one to use"):
        resolve_model(str(gguf.parent), _ignore)
    (gguf.parent.parent / "empty").mkdir()
    with pytest.raises(ModelError, match=r"empty should hold \*\.safetensors or one \.gguf file; it has neither"):
        resolve_model(str(gguf.parent.parent / "empty"), _ignore)


@pytest.mark.parametrize("model", ["smolm2", "./nowhere", "/no/such/model.gguf", "a/b/c"])
def test_what_is_no_model_is_told_with_the_known_names(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was looked for, and what could be given."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError) as caught:
        resolve_model(model, _ignore)
    assert repr(model) in str(caught.value)
    assert "smollm2-135m, gemma3-270m" in str(caught.value)


@pytest.mark.parametrize("model", ["x" * 5000, "~nobody-of-this-name/model"])
def test_path_that_cannot_be_is_told(model: str) -> None:
    """Too long for a path, and in the home of nobody."""
    with pytest.raises(ModelError, match="no model '"):
        resolve_model(model, _ignore)


def test_folder_needs_no_weights_if_there_is_another_core(gguf: Path, tmp_path: Path) -> None:
    """A tokenizer is enough; without one, the folder's GGUF has it."""
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "tokenizer.json").touch()
    assert resolve_model(str(folder), _ignore, needs_weights=False) == ModelFiles("text", folder, folder)
    assert resolve_model(str(gguf.parent), _ignore, needs_weights=False).path == gguf


def test_file_that_is_no_gguf_is_told(tmp_path: Path) -> None:
    """And leaves nothing in the cache."""
    (tmp_path / "notes.txt").write_text("not a model")
    with pytest.raises(ModelError, match=r"notes\.txt is not a readable GGUF file"):
        resolve_model(str(tmp_path / "notes.txt"), _ignore)
    assert [*(cache_folder() / "tokenizers").iterdir()] == []


def test_cache_that_cannot_be_written_is_told(gguf: Path, tmp_path: Path) -> None:
    """A file where the folder should be."""
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(ModelError, match="could not write"):
        resolve_model(str(gguf), _ignore)


def test_tokenizers_made_at_once_are_one(gguf: Path) -> None:
    """Eight threads, one folder, no error, no rest."""
    found: list[ModelFiles] = []
    threads = [threading.Thread(target=lambda: found.append(resolve_model(str(gguf), _ignore))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [*(cache_folder() / "tokenizers").iterdir()] == [found[0].tokenizer_folder]
