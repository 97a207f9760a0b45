"""Which file of a model holds its weights."""

from pathlib import Path

from core.model.gguf_source import open_gguf
from core.model.safetensors_source import open_safetensors
from core.model.weight_source import ModelLoadError, WeightSource


def open_weights(path: Path) -> WeightSource:
    """Of a ``.gguf`` file, a folder with safetensors, or a folder with one ``.gguf`` file. Raises ModelLoadError."""
    if path.is_file():
        return open_gguf(path)
    if not path.is_dir():
        raise ModelLoadError(f"{path}: no such file or folder")
    if next(path.glob("*.safetensors"), None) is not None:
        return open_safetensors(path)
    found = sorted(path.glob("*.gguf"))
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise ModelLoadError(f"{path}: must hold *.safetensors or exactly one .gguf file, found {names}")
    return open_gguf(found[0])
