"""Servers of one service in a network of their own: one name for them all, as a headless Service has, and Envoy."""

import asyncio
import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.container import image as images
from tests.deploy.container.podman import HARDENED, Container, podman, running
from tests.deploy.envoy.proxy import envoy_path, set_backends, shipped

NAME = "sluicegate-headless"
_PORT, PROXY_PORT = 50051, 50050
_INSIDE = "/usr/local/bin/envoy", "/etc/envoy.json"


@dataclass(frozen=True)
class Network:
    """One whose names are asked for at ``gateway``."""

    name: str
    gateway: str

    @property
    def servers(self) -> str:
        """A target that is all the servers, for gRPC on this machine."""
        return f"dns://{self.gateway}:53/{NAME}.:{_PORT}"


@contextmanager
def network() -> Iterator[Network]:
    """It is gone at the end of the block, which must have no container any more."""
    name = f"sluicegate-{uuid.uuid4().hex[:8]}"
    podman("network", "create", name)
    try:
        yield Network(name, podman("network", "inspect", "--format={{(index .Subnets 0).Gateway}}", name))
    finally:
        podman("network", "rm", "--force", name)


class Replica:
    """One server, as a pod is: another has another address. Close it before the network goes."""

    def __init__(self, image: str, network: Network, lame_duck_s: int) -> None:
        self._image = image
        self._options = [*HARDENED, f"--network={network.name}", f"--network-alias={NAME}"]
        self._options += [f"--env=SLUICEGATE_LAME_DUCK={lame_duck_s}", "--env=SLUICEGATE_ACCESS_LOG=true"]
        self._stack = ExitStack()
        self._container: Container | None = None

    @property
    def container(self) -> Container:
        """The one that was started."""
        assert self._container is not None, "started"
        return self._container

    async def start(self) -> None:
        """Returns when it is ready."""
        await asyncio.to_thread(self._start)

    async def end(self) -> None:
        """SIGTERM, and as much time as it takes."""
        await asyncio.to_thread(self.container.signal, "TERM")
        assert await asyncio.to_thread(self.container.exit_code) == 0, self.container.log()

    async def die(self) -> None:
        """SIGKILL."""
        await asyncio.to_thread(self.container.signal, "KILL")

    async def until_used_by(self, hosts: Iterable[str]) -> None:
        """Returns when calls of each host have ended on it: they have found it."""
        for host in hosts:
            await asyncio.to_thread(self.container.until_logged, rf"InferenceService/\S+ code=OK .*peer=ipv4:{host}:")

    async def close(self) -> None:
        """Nothing of it is left."""
        await asyncio.to_thread(self._stack.close)

    def _start(self) -> None:
        self._container = self._stack.enter_context(running(self._image, options=self._options))
        self._container.until_logged("ready grpc=")


@contextmanager
def envoy(network: Network, folder: Path) -> Iterator[Container]:
    """Envoy, with the shipped configuration for the one name. ``folder`` is for its files."""
    config = shipped("load-balancer.yaml")
    set_backends(config, [f"{NAME}:{_PORT}"])
    listener = config["static_resources"]["listeners"][0]["address"]["socket_address"]
    listener["address"] = "0.0.0.0"
    file = folder / "envoy.json"
    file.write_text(json.dumps(config))
    mounts = [f"--volume={path}:{inside}:ro" for path, inside in zip((envoy_path(), file), _INSIDE, strict=True)]
    options = [f"--network={network.name}", *mounts]
    with running(images.base(), *(_INSIDE[0], "-c", _INSIDE[1], "--concurrency", "1"), options=options) as container:
        container.until_logged("all dependencies initialized. starting workers")
        yield container
