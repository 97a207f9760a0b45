"""What is in the images, and what is not."""

import json
import re
import subprocess

import pytest

from tests.deploy.container.image import ROOT
from tests.deploy.container.image import base as base_image
from tests.deploy.container.podman import environment, podman
from tests.deploy.container.transcript import say

pytestmark = pytest.mark.container

_HAS = """
import importlib.util, json, shutil, sys
modules = [name for name in sys.argv[1:] if importlib.util.find_spec(name)]
programs = [name for name in ("gcc", "g++", "cc", "ld", "make") if shutil.which(name)]
print(json.dumps([modules, programs]))
"""
_VERSIONS = """
import json
from importlib.metadata import distributions
found = distributions(path=[path for path in __import__("sys").path if path.startswith("/opt/sluicegate/")])
print(json.dumps({d.metadata["Name"].lower(): d.version for d in found}))
"""
_LEFT = "ls -d /etc/pip.conf /src /build /wheel /root/.cache 2> /dev/null; ls /opt"
_CUDA = ("nvidia-", "cuda-", "triton")
"""What a torch for CUDA brings, in the versions that it names itself."""
_MOST_BYTES = {"gateway": 230e6, "core": 950e6, "test": 1000e6}
"""Beside the base's, with a torch for CPUs."""


def python_in(image: str, code: str, *arguments: str) -> str:
    return podman("run", "--rm", "--network=none", "--entrypoint=python", image, "-c", code, *arguments)


def sizes_of(image: str) -> tuple[int, int]:
    """Bytes of the files, and of what a registry would keep: the layers packed with gzip."""
    pack = f"podman save --format=docker-archive {image} | gzip -1 | wc -c"
    packed = subprocess.run(pack, shell=True, env=environment(), capture_output=True, check=True, timeout=600)
    return int(podman("image", "inspect", "--format={{.Size}}", image)), int(packed.stdout)


def test_gateway_has_no_torch(gateway_image: str) -> None:
    """The gateway's image has neither torch nor transformers, and no compiler."""
    modules, programs = json.loads(python_in(gateway_image, _HAS, "grpc", "torch", "transformers"))
    assert modules == ["grpc"]
    assert programs == []


def test_core_has_no_grpc(core_image: str) -> None:
    """The core's image has no gRPC and no compiler, but kernels of every instruction set."""
    native = ["core.native._avx2", "core.native._avx512"]
    modules, programs = json.loads(python_in(core_image, _HAS, "grpc", "torch", *native))
    assert modules == ["torch", *native]
    assert programs == []


def test_versions_are_pinned(image: str) -> None:
    """Every package in the image is of the version that constraints.txt says, and pip finds none missing."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text().lower(), re.MULTILINE))
    found = json.loads(python_in(image, _VERSIONS))
    unpinned = {name for name, version in found.items() if pins.get(name) != version.partition("+")[0]}
    assert {name for name in unpinned if not name.startswith(_CUDA)} == {"sluicegate"}
    say(python_in(image, "import sys; from pip._internal.cli.main import main; sys.exit(main(['check']))"))


def test_nothing_of_the_build_is_left(image: str) -> None:
    """What the build was given to fetch packages, and what they were made from, is not in the image."""
    seen = podman("run", "--rm", "--network=none", "--entrypoint=sh", image, "-c", _LEFT)
    assert seen.split() == ["models", "sluicegate"]


@pytest.mark.parametrize("target", ["gateway", "core", "default"])
def test_configuration(target: str, request: pytest.FixtureRequest) -> None:
    """Images run as a user without a name or rights, end by SIGTERM, and say how to ask them for their health."""
    name = request.getfixturevalue({"default": "image"}.get(target, f"{target}_image"))
    config = json.loads(podman("image", "inspect", "--format={{json .Config}}", name))
    health = json.loads(podman("image", "inspect", "--format={{json .HealthCheck}}", name))
    assert config["User"] == "65532:0"
    assert config["StopSignal"] == "SIGTERM"
    assert config["Entrypoint"] == ["sluicegate"]
    assert config["Labels"]["org.opencontainers.image.title"] == "sluicegate"
    assert health["Test"][:1] == (["NONE"] if target == "core" else ["CMD"])
    if target != "core":
        assert {*config["ExposedPorts"]} == {"50051/tcp", "9464/tcp"}


@pytest.mark.parametrize("target", ["gateway", "core", "default"])
def test_sizes(target: str, request: pytest.FixtureRequest) -> None:
    """No image has grown unseen; every layer is told with what it adds."""
    name = request.getfixturevalue({"default": "image"}.get(target, f"{target}_image"))
    layers = [line.split("\t") for line in podman("history", "--format={{.Size}}\t{{.CreatedBy}}", name).splitlines()]
    for size, created_by in layers:
        if not size.startswith("0"):
            say(f"  {size:>9}  {created_by[:90]}")
    unpacked, packed = sizes_of(name)
    base, base_packed = sizes_of(base_image())
    say(f"  {target}: {unpacked / 1e6:.0f} MB, of which the base is {base / 1e6:.0f} MB")
    say(f"  packed: {packed / 1e6:.0f} MB, of which the base is {base_packed / 1e6:.0f} MB")
    if target == "gateway" or "+cpu" in python_in(name, "import torch; print(torch.__version__)"):
        assert unpacked - base < _MOST_BYTES[name.partition(":")[2]]
