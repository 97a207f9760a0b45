from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core import builders
from tests.core.front_end import FrontEnd


@pytest.fixture(autouse=True)
def nothing_is_lost() -> Iterator[None]:
    """Whatever a test did with an engine, every block and every request is accounted for."""
    builders.MADE.clear()
    yield
    for engine in builders.MADE:
        engine.check_integrity()
    builders.MADE.clear()


@pytest.fixture
def front_end(tmp_path: Path) -> Iterator[FrontEnd]:
    with FrontEnd(tmp_path) as found:
        yield found


@pytest.fixture
def two_clients(tmp_path: Path) -> Iterator[FrontEnd]:
    with FrontEnd(tmp_path, num_clients=2) as found:
        yield found
