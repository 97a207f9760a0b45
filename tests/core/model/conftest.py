from pathlib import Path

import pytest

from core.config import ModelConfig
from core.model.model import Model
from core.model.registry import load_model
from tests.core.model.tiny_model import TINY, TinyModel
from tests.model_files import find_smollm2


@pytest.fixture(scope="session")
def smollm2() -> Model:
    return load_model(ModelConfig(path=find_smollm2(), quantization="none"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder: Path = tmp_path_factory.mktemp("tiny")
    TinyModel(TINY).write_safetensors(folder)
    return load_model(ModelConfig(path=folder))
