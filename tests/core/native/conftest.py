"""The kernels that this machine can run, one module for each instruction set: a missing one fails."""

import pytest

from core.native import find_kernels, runnable_kernels
from core.native.kernels import Kernels


@pytest.fixture(params=runnable_kernels())
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return all_of([request.param])[0]


@pytest.fixture
def all_kernels() -> list[Kernels]:
    return all_of(runnable_kernels())


def all_of(names: list[str]) -> list[Kernels]:
    found = [find_kernels(name) for name in names]
    assert None not in found
    return [kernels for kernels in found if kernels is not None]
