"""Which file of a model holds its weights."""

import logging
from pathlib import Path

from core.model.weights.gguf_source import open_gguf
from core.model.weights.hf_config import find_text_config, read_architecture
from core.model.weights.safetensors_source import open_safetensors, read_config
from core.model.weights.settings import UnsupportedChoiceError
from core.model.weights.weight_source import ModelLoadError, WeightSource

logger = logging.getLogger(__name__)


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
    """Whether it is a folder of safetensors whose configuration asks for what is not computed here."""
    if not (path / "config.json").is_file() or next(path.glob("*.safetensors"), None) is None:
        return False
    config = read_config(path)
    if not isinstance(config.values.get("model_type"), str):
        return False
    try:
        read_architecture(find_text_config(config))
    except UnsupportedChoiceError as unsupported:
        logger.info("left to transformers: %s", unsupported)
        return True
    except ModelLoadError:
        return False
    return False
