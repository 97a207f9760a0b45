"""What vLLM's wheel for CPUs needs to be installed and to start beside a torch of another build."""

import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement

GRPC = "grpcio>=1.81", "grpcio-health-checking", "grpcio-reflection", "smg-grpc-servicer==0.14.1"
"""For its own gRPC server."""


def requirements(wheel: Path) -> Iterator[str]:
    """What it needs here, but for torch and its kin."""
    with zipfile.ZipFile(wheel) as members:
        (metadata,) = (name for name in members.namelist() if name.endswith(".dist-info/METADATA"))
        lines = message_from_bytes(members.read(metadata)).get_all("Requires-Dist", [])
    for requirement in map(Requirement, lines):
        if not requirement.name.startswith("torch") and (requirement.marker is None or requirement.marker.evaluate()):
            requirement.marker = None
            yield str(requirement)


def call_it_vllm(site_packages: Path, version: str) -> None:
    """It asks for a package of this name, and for "cpu" in its version."""
    folder = site_packages / f"vllm-{version}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
