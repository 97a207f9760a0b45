"""The tokenizer as a zip, for routers on other machines."""

import asyncio
import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from smg_grpc_proto.generated import common_pb2 as pb

from service.errors import FailedPrecondition, Internal

CHUNK_BYTES = 64 * 1024
MAX_FILES = 50
MAX_BYTES = 200 * 2**20
MAX_UNPACKED_BYTES = 500 * 2**20
"""What routers take."""
_PATTERNS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "chat_template.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "processor_config.json",
    "*.tiktoken",
    "*.jinja",
    "*.model",
)
_NO_TIME = (1980, 1, 1, 0, 0, 0)
"""The first that a zip can say."""


class _Archive(NamedTuple):
    data: bytes
    sha256: str


class TokenizerArchive:
    """Of one folder, made when it is first asked for and kept. The same files give the same bytes, on every server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._archive: _Archive | None = None
        self._making = asyncio.Lock()

    async def chunks(self) -> Iterator[pb.GetTokenizerChunk]:
        """Its parts in order; the last says what the whole hashes to.

        Raises FailedPrecondition if the folder has no tokenizer or one too large for routers, Internal if it cannot be
        read.
        """
        async with self._making:
            if self._archive is None:
                self._archive = await asyncio.to_thread(_make, self._folder)
        return _chunks(self._archive)


def _chunks(archive: _Archive) -> Iterator[pb.GetTokenizerChunk]:
    data, sha256 = archive
    for start in range(0, len(data), CHUNK_BYTES):
        end = start + CHUNK_BYTES
        yield pb.GetTokenizerChunk(data=data[start:end], sha256=sha256 if end >= len(data) else "")


def _make(folder: Path) -> _Archive:
    try:
        data = _zipped(_files(folder))
    except OSError as error:
        raise Internal("the tokenizer cannot be read", reason="TOKENIZER_UNREADABLE", cause=str(error)) from error
    if len(data) > MAX_BYTES:
        raise _too_large(f"{len(data)} bytes as a zip, routers take {MAX_BYTES}")
    return _Archive(data, hashlib.sha256(data).hexdigest())


def _files(folder: Path) -> list[Path]:
    paths = sorted({path for pattern in _PATTERNS for path in folder.glob(pattern) if path.is_file()})
    if not paths:
        raise FailedPrecondition("this server has no tokenizer to hand out", reason="NO_TOKENIZER")
    num_bytes = sum(path.stat().st_size for path in paths)
    if len(paths) > MAX_FILES or num_bytes > MAX_UNPACKED_BYTES:
        raise _too_large(f"{len(paths)} files of {num_bytes} bytes, routers take {MAX_FILES} of {MAX_UNPACKED_BYTES}")
    return paths


def _zipped(paths: list[Path]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in paths:
            entry = zipfile.ZipInfo(path.name, _NO_TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _too_large(text: str) -> FailedPrecondition:
    return FailedPrecondition(f"the tokenizer has {text}", reason="TOKENIZER_TOO_LARGE")
