"""The tokenizer as a zip."""

import asyncio
import hashlib
import io
import os
import zipfile
from pathlib import Path

import pytest

from service.errors import FailedPrecondition, Internal
from service.servicers.vllm_engine.tokenizer_archive import CHUNK_BYTES, MAX_FILES, TokenizerArchive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.json").write_bytes(os.urandom(3 * CHUNK_BYTES))
    for name in ("tokenizer_config.json", "config.json", "chat_template.jinja", "spiece.model", "o200k.tiktoken"):
        (tmp_path / name).write_text(name)
    for name in ("model.safetensors", "weights.gguf", "README.md"):
        (tmp_path / name).write_text("not for routers")
    (tmp_path / "old.model").mkdir()
    return tmp_path


async def fetched(archive: TokenizerArchive) -> list[tuple[bytes, str]]:
    return [(chunk.data, chunk.sha256) for chunk in await archive.chunks()]


def age(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, (1e9, 1e9))


def remove_files(folder: Path) -> None:
    for path in folder.glob("*.json"):
        path.unlink()


async def test_chunks_join_to_a_zip_of_what_makes_the_tokenizer(folder: Path) -> None:
    """Of 64 KiB each; the last one has the hash of the whole."""
    chunks = await fetched(TokenizerArchive(folder))
    data = b"".join(data for data, _ in chunks)
    assert [len(data) for data, _ in chunks[:-1]] == [CHUNK_BYTES] * 3
    assert [sha256 for _, sha256 in chunks] == ["", "", "", hashlib.sha256(data).hexdigest()]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        found = {name: archive.read(name) for name in archive.namelist()}
    names = (
        "tokenizer.json",
        "tokenizer_config.json",
        "config.json",
        "chat_template.jinja",
        "spiece.model",
        "o200k.tiktoken",
    )
    assert found == {name: (folder / name).read_bytes() for name in names}


async def test_the_same_files_give_the_same_bytes(folder: Path) -> None:
    """Whenever they were written: routers keep what they know by its hash."""
    first = await fetched(TokenizerArchive(folder))
    age(folder)
    assert await fetched(TokenizerArchive(folder)) == first


async def test_it_is_made_once(folder: Path) -> None:
    """For callers at the same time too; nobody misses the files later."""
    archive = TokenizerArchive(folder)
    first, second = await asyncio.gather(fetched(archive), fetched(archive))
    remove_files(folder)
    assert first == second == await fetched(archive)


async def test_without_a_tokenizer_there_is_none_to_fetch(tmp_path: Path) -> None:
    """And as soon as there is one it is found: a failure is not kept."""
    archive = TokenizerArchive(tmp_path)
    with pytest.raises(FailedPrecondition, match="no tokenizer"):
        await archive.chunks()
    (tmp_path / "tokenizer.json").write_text("{}")
    assert len(await fetched(archive)) == 1


async def test_more_than_routers_take_is_refused(folder: Path) -> None:
    for number in range(MAX_FILES):
        (folder / f"{number}.jinja").write_text("x")
    with pytest.raises(FailedPrecondition, match="routers take 50"):
        await TokenizerArchive(folder).chunks()


async def test_a_file_that_cannot_be_read_is_ours(tmp_path: Path) -> None:
    """A link to nowhere is no file, one that loops is an error of the system's."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").symlink_to(tmp_path / "missing")
    assert len(await fetched(TokenizerArchive(tmp_path))) == 1
    with pytest.raises(Internal) as raised:
        await TokenizerArchive(_Vanishing(tmp_path)).chunks()
    assert "gone" in raised.value.cause


class _Vanishing(type(Path())):  # type: ignore[misc]
    """A folder whose disk has gone."""

    def glob(self, pattern: str) -> list[Path]:  # type: ignore[override]
        raise OSError(f"{self} is gone, with {pattern}")
