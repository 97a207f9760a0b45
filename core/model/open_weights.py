"""Which file of a model holds its weights."""

from pathlib import Path

from core.model.architecture import FAMILIES
from core.model.gguf_source import open_gguf
from core.model.safetensors_source import open_safetensors, read_json
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


def is_left_to_transformers(path: Path) -> bool:
    """Whether it is a folder of safetensors of a family that is not computed here."""
    if not (path / "config.json").is_file() or next(path.glob("*.safetensors"), None) is None:
        return False
    family = read_json(path / "config.json").get("model_type")
    return isinstance(family, str) and family not in FAMILIES
