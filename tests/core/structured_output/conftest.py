from pathlib import Path

import pytest
from llguidance import LLTokenizer

from core.structured_output.vocabulary import load_vocabulary
from tests.core.structured_output.vocabulary_files import write_byte_level


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the byte-level tokenizer."""
    folder = tmp_path_factory.mktemp("tokenizer")
    write_byte_level(folder)
    return folder


@pytest.fixture(scope="session")
def vocabulary(tokenizer_folder: Path) -> LLTokenizer:
    return load_vocabulary(tokenizer_folder, 1000)
