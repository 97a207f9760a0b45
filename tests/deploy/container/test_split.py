"""Gateway and core in containers of their own that share a folder of sockets; a core that runs out of memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.deploy.container.memory import fill_memory
from tests.deploy.container.podman import HARDENED, Container, running, volume
from tests.deploy.container.streams import answer, open_streams
from tests.deploy.container.transcript import say

pytestmark = pytest.mark.container


@dataclass(frozen=True)
class Split:
    gateway: Container
    core: Container

    @property
    def address(self) -> str:
        return f"{self.gateway.ip()}:50051"


@pytest.fixture
def split(gateway_image: str, core_image: str) -> Iterator[Split]:
    with volume() as sockets, in_two_containers(gateway_image, core_image, sockets) as both:
        yield both


@contextmanager
def in_two_containers(gateway_image: str, core_image: str, sockets: str) -> Iterator[Split]:
    """The core comes again when it ends, as in a pod; its memory is bounded."""
    shared = f"--volume={sockets}:/run/sluicegate"
    options = [*HARDENED, shared]
    bounded = ["--restart=always", "--memory=900m", "--env=SLUICEGATE_KV_CACHE_MEMORY=200MiB"]
    with running(gateway_image, options=options) as gateway, running(core_image, options=[*options, *bounded]) as core:
        gateway.until_logged("ready grpc=")
        yield Split(gateway, core)


def test_two_containers(split: Split, undisturbed: str) -> None:
    """A gateway without torch and a core without gRPC say what both in one container say."""
    assert split.gateway.is_healthy()
    assert answer(split.address) == undisturbed


def test_out_of_memory(split: Split, undisturbed: str) -> None:
    """The kernel kills a core that is over its limit; another comes, and streams go on to the same text."""
    with open_streams(split.address, count=4) as streams:
        first = split.core.pid()
        say(fill_memory(split.core))
        say(split.gateway.until_logged("rank 0 serves again.*")[0])
        assert streams.read_to_the_end() == [undisturbed] * 4
    assert split.core.inspect("{{.RestartCount}}") == "1"
    say(f"core {first} was killed, {split.core.pid()} came; 4 streams complete, to the same text")
