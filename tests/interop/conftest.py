import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.interop import packages, vllm_python, vllm_rs
from tests.interop.program import Program


@pytest.fixture(scope="session", params=["0.25.1", "0.33.0"])
def vllm_version(request: pytest.FixtureRequest) -> str:
    """Releases of vLLM whose front ends are tried."""
    version: str = request.param
    return version


@pytest.fixture(scope="session")
def vllm_rs_program(vllm_version: str) -> Path:
    return _or_skip(lambda: packages.vllm_rs(vllm_version))


@pytest.fixture(scope="session")
def smg_program() -> Path:
    return _or_skip(lambda: packages.smg("1.13.0"))


@pytest.fixture(scope="session")
def grpcurl_program() -> Path:
    return _or_skip(lambda: packages.grpcurl("1.8.6.post2"))


@pytest.fixture(scope="session")
def node_modules() -> Path:
    return _or_skip(lambda: packages.node_modules("@grpc/grpc-js@1.14.7", "@grpc/proto-loader@0.8.1"))


@pytest.fixture(scope="session")
def triton_python() -> Path:
    return _or_skip(lambda: packages.tritonclient("2.73.0"))


@pytest.fixture(scope="session")
def vllm_interpreter() -> Path:
    return _or_skip(vllm_python.interpreter)


@pytest.fixture
def folder() -> Iterator[Path]:
    """For sockets. Not below pytest's tmp_path: their paths may have 107 characters at most."""
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        yield Path(folder)


def _or_skip(fetch: Callable[[], Path]) -> Path:
    try:
        return fetch()
    except packages.NotAvailableError as reason:
        pytest.skip(str(reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the log of the program that it used."""
    report = yield
    front_end = getattr(item, "funcargs", {}).get("front_end")
    program = front_end.program if isinstance(front_end, vllm_rs.FrontEnd) else front_end
    if report.failed and isinstance(program, Program):
        report.sections.append(("program log", program.log))
    return report
