"""service.models.gguf_header: reads what the reference implementation writes, and refuses the rest."""

from pathlib import Path

import gguf
import pytest

from service.models import ModelError
from service.models.gguf_header import read_gguf_header
from tests.service.models.tiny_gguf import byte_level_metadata, sentencepiece_metadata, write_gguf


@pytest.mark.parametrize("metadata", [byte_level_metadata(), sentencepiece_metadata()])
def test_metadata_and_tensors_are_those_of_the_reference_reader(tmp_path: Path, metadata: dict[str, object]) -> None:
    """Every key, every value, every type that a vocabulary needs."""
    path = write_gguf(
        tmp_path / "a.gguf", ("x", "output.weight"), a__float=1.5, a__bool=True, a__list=[1, 2], **metadata
    )
    header = read_gguf_header(path)
    reference = gguf.GGUFReader(path)
    fields = {key: field.contents() for key, field in reference.fields.items() if not key.startswith("GGUF.")}
    assert header.metadata == fields
    assert header.tensor_names == {tensor.name for tensor in reference.tensors} == {"x", "output.weight"}


def test_file_cut_anywhere_in_its_header_is_refused(tmp_path: Path) -> None:
    """With the path, whatever byte it ends at."""
    data = write_gguf(tmp_path / "a.gguf", **byte_level_metadata()).read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in range(0, len(data) - 64, 97):
        cut.write_bytes(data[:size])
        with pytest.raises(ModelError, match=r"cut\.gguf is not a readable GGUF file"):
            read_gguf_header(cut)


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04" + bytes(40),
        b"GGUF\x01\x00\x00\x00" + bytes(40),
        b"GGUF\x00\x00\x00\x03" + bytes(40),
        b"GGUF\x03\x00\x00\x00" + b"\xff" * 40,
        b"GGUF\x03\x00\x00\x00" + bytes(8) + b"\x01" + bytes(7) + b"\x01" + bytes(7) + b"a" + b"\x63\x00\x00\x00",
    ],
    ids=["zip", "version 1", "big endian", "huge counts", "unknown type"],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    """At once, not after reading for ever."""
    path = tmp_path / "other.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelError, match="not a readable GGUF file"):
        read_gguf_header(path)
