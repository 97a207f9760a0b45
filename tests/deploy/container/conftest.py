"""The image, once for all; and what was said, together at the end."""

import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate_client import Client
from tests.deploy.container import image as images
from tests.deploy.container.podman import Container, podman, running
from tests.deploy.container.streams import answer
from tests.deploy.container.transcript import LINES, say
from tests.toolchain import require


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """The default image, with gateway and core."""
    _require_root_and_programs()
    yield images.build()
    images.forget_older()


@pytest.fixture(scope="session")
def gateway_image(image: str) -> str:  # noqa: ARG001  the stages that they share are there
    return images.build("gateway")


@pytest.fixture(scope="session")
def core_image(image: str) -> str:  # noqa: ARG001
    return images.build("core")


def _require_root_and_programs() -> None:
    """Memory limits and networks as a cluster has them are for root alone."""
    require(*images.programs())
    if os.geteuid() != 0:
        pytest.fail("needs root: sudo make container-test", pytrace=False)


@pytest.fixture(scope="module")
def server(image: str) -> Iterator[Container]:
    """One that serves its own model."""
    with running(image) as container:
        ready = container.until_logged(r"ready grpc=\S+ model=(\S+) seconds=\S+")
        say(ready[0])
        yield container


@pytest.fixture
def client(server: Container) -> Iterator[Client]:
    with Client(f"{server.ip()}:50051") as client:
        yield client


@pytest.fixture(scope="session")
def undisturbed(image: str) -> str:
    """The text of a request that nothing happens to."""
    with running(image) as container:
        container.until_logged("ready grpc=")
        return answer(f"{container.ip()}:50051")


@pytest.fixture(scope="session")
def model_image(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image that holds a model's files at its root and nothing else."""
    archive = tmp_path_factory.mktemp("model") / "model.tar"
    with tarfile.open(archive, "w") as tar:
        for file in sorted(smollm2_folder.iterdir()):
            tar.add(file, file.name)
    name = "localhost/sluicegate-model:1"
    podman("import", str(archive), name)
    archive.unlink()
    return name


@pytest.fixture(autouse=True)
def _said(request: pytest.FixtureRequest) -> None:
    """The sentence that a test holds, before it begins."""
    say("· " + re.sub(r"\s+", " ", request.function.__doc__ or request.function.__name__))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LINES:
        terminalreporter.section("what was seen")
        terminalreporter.write_line("\n".join(LINES))
