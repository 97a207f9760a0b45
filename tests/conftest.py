"""The model that every fresh machine has: SmolLM2, pulled once into the user's cache; and folders for sockets."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from service.models import ModelFiles, Progress, resolve_model
from service.served_model import ModelText, ServedModel
from service.text.tokenizer import Tokenizer

MAX_MODEL_LEN = 8192

# A busy machine is no failure.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def smollm2_files() -> ModelFiles:
    """SmolLM2-135M-Instruct, downloaded if this machine lacks it."""
    return resolve_model("smollm2-135m", _ignore)


@pytest.fixture(scope="session")
def smollm2_folder(smollm2_files: ModelFiles) -> Path:
    return smollm2_files.tokenizer_folder


@pytest.fixture(scope="session")
def smollm2(smollm2_files: ModelFiles) -> ServedModel:
    """SmolLM2 as the gateway sees it: tokenizer and configuration, no weights."""
    return ServedModel(**vars(ModelText.load(smollm2_files)), max_model_len=MAX_MODEL_LEN)


@pytest.fixture(scope="session")
def tokenizer(smollm2: ServedModel) -> Tokenizer:
    return smollm2.tokenizer


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """The path of a socket may have 107 characters at most, which pytest's own folders spend."""
    with TemporaryDirectory(prefix="sg") as folder:
        yield Path(folder)


@pytest.fixture
def show(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """A line for the end of the run: what a test that has passed measured or counted."""
    return partial(record_property, "shown")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = terminalreporter.getreports("passed")
    if lines := [str(value) for report in passed for name, value in report.user_properties if name == "shown"]:
        terminalreporter.section("shown by tests")
        terminalreporter.write("".join(f"{line}\n" for line in lines))


def _ignore(progress: Progress) -> None:
    """Nobody watches."""
