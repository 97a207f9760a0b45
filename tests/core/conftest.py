from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.front_end import FrontEnd


@pytest.fixture
def front_end(tmp_path: Path) -> Iterator[FrontEnd]:
    with FrontEnd(tmp_path) as found:
        yield found


@pytest.fixture
def two_clients(tmp_path: Path) -> Iterator[FrontEnd]:
    with FrontEnd(tmp_path, num_clients=2) as found:
        yield found
