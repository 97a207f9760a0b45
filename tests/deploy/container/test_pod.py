"""The pod of the Helm chart, run by `podman play kube`: gateway and core as two containers, probed by commands."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.container.memory import fill_memory
from tests.deploy.container.podman import Container, podman
from tests.deploy.container.streams import answer, open_streams
from tests.deploy.container.transcript import say
from tests.deploy.helm.chart import Pod, render_with

pytestmark = pytest.mark.container


@dataclass(frozen=True)
class RunningPod:
    """``spec`` is what it was started from."""

    name: str
    spec: dict[str, Any]

    def container(self, name: str) -> Container:
        return Container(f"{self.name}-{name}")

    def address(self) -> str:
        """Of its gRPC port, on this machine."""
        (container,) = [each for each in self.spec["containers"] if each["name"] == "gateway"]
        (port,) = [each["containerPort"] for each in container["ports"] if each["name"] == "grpc"]
        return f"127.0.0.1:{port}"

    def probe(self, name: str, container: str = "gateway") -> str:
        """What the command of a probe prints, run as the kubelet would. Raises PodmanError if it fails."""
        (spec,) = [each for each in self.spec["containers"] if each["name"] == container]
        return self.container(container).execute(*spec[name]["exec"]["command"])


@pytest.fixture(scope="module")
def rendered(gateway_image: str, core_image: str) -> Pod:
    """The chart's, for a cluster that assigns users (group 0), with images by role and little memory for the core."""
    return render_with(
        'probes={"type": "exec"}',
        f"gateway={json.dumps({'image': image_values(gateway_image)})}",
        f"core={json.dumps({'image': image_values(core_image), 'resources': {'limits': {'memory': '900Mi'}}})}",
        'model={"kvCacheMemory": "200MiB"}',
        'podSecurityContext={"runAsUser": 12345, "runAsGroup": 0}',
        f"ports={json.dumps(dict(zip(('grpc', 'health', 'metrics'), free_ports(3), strict=True)))}",
    ).server


def free_ports(count: int) -> list[int]:
    """Podman opens a pod's ports on this machine, too."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def image_values(name: str) -> dict[str, str]:
    repository, _, tag = name.rpartition(":")
    return {"repository": repository, "tag": tag}


@contextmanager
def played(pod: Pod, folder: Path) -> Iterator[RunningPod]:
    """Gone, with its volumes, at the end of the block."""
    name = "sluicegate-pod"
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {**pod.metadata, "name": name}, "spec": pod.spec}
    file = folder / "pod.yaml"
    file.write_text(yaml.safe_dump(document))
    podman("pod", "rm", "--force", "--ignore", name)
    try:
        podman("play", "kube", str(file))
        yield RunningPod(name, pod.spec)
    finally:
        podman("play", "kube", "--down", str(file))
        podman("volume", "prune", "--force")


@pytest.fixture
def pod(rendered: Pod, tmp_path: Path) -> Iterator[RunningPod]:
    with played(rendered, tmp_path) as pod:
        say(pod.container("gateway").until_logged("ready grpc=.*")[0])
        yield pod


def test_pod(pod: RunningPod, undisturbed: str) -> None:
    """Started from what the chart renders it is ready, by its own probes, and says what the image says."""
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        say(f"{probe}: {pod.probe(probe)}")
    assert answer(pod.address()) == undisturbed
    assert pod.container("core").inspect("{{.HostConfig.Memory}}") == str(900 << 20)
    assert pod.container("core").inspect("{{.HostConfig.ReadonlyRootfs}}") == "true"


def test_core_without_memory(pod: RunningPod, undisturbed: str) -> None:
    """A core that the kernel kills is started again by the pod, and no stream of the gateway breaks."""
    core = pod.container("core")
    with open_streams(pod.address(), count=4) as streams:
        first = core.pid()
        say(fill_memory(core))
        assert streams.read_to_the_end() == [undisturbed] * 4
    assert core.pid() != first
    say(f"core {first} was killed, {core.pid()} came; 4 streams complete, to the same text")


def test_pod_ends(pod: RunningPod, undisturbed: str) -> None:
    """Told to end with open streams, as the kubelet tells all containers, both drain and end with 0."""
    both = [pod.container(name) for name in ("gateway", "core")]
    with open_streams(pod.address(), count=4) as streams, ThreadPoolExecutor() as beside:
        endings = [beside.submit(podman, "stop", "--time=120", container.name) for container in both]
        both[0].until_logged("(?i)drain")
        assert streams.read_to_the_end() == [undisturbed] * 4
        for ending in endings:
            ending.result()
    assert [container.inspect("{{.State.ExitCode}}") for container in both] == ["0", "0"]
    say("4 streams complete, exit codes 0")
