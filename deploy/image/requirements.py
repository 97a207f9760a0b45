"""``python requirements.py FOLDER [TORCH]``: what the images install, from pyproject.toml and constraints.txt here.

    gateway.txt      the project's dependencies
    core.txt         those without what only gateways import, and the extra `core`
    torch.txt        torch alone, since it may come from an index of its own: TORCH, or else the version that is pinned
    constraints.txt  the pins of all others, without those of tools for development

Files that come out the same as before are layers that need not be built, or fetched, again.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

# What a core never imports: a test holds that against its processes.
NOT_FOR_CORE = {
    "cryptography",
    "googleapis-common-protos",
    "grpcio",
    "grpcio-channelz",
    "grpcio-health-checking",
    "grpcio-reflection",
    "grpcio-status",
    "opentelemetry-exporter-otlp-proto-grpc",
    "opentelemetry-sdk",
    "prometheus_client",
    "protobuf",
    "smg-grpc-proto",
    "uvloop",
}


def lists(project: dict[str, list[str]], pins: list[str], torch: str) -> dict[str, list[str]]:
    """Lines by file; ``project`` has the requirements of "" and of each extra, ``torch`` may be empty."""
    (pinned,) = [pin for pin in pins if _name(pin) == "torch"]
    tools = {"torch", *_names(project["dev"])} - _names(project[""])
    return {
        "gateway.txt": project[""],
        "core.txt": [line for line in project[""] if _name(line) not in NOT_FOR_CORE] + project["core"],
        "torch.txt": [torch or pinned],
        "constraints.txt": [pin for pin in pins if _name(pin) not in tools],
    }


def _names(requirements: Iterable[str]) -> set[str]:
    return {_name(requirement) for requirement in requirements}


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]


def _main(folder: str, torch: str = "") -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    pins = [line for line in Path("constraints.txt").read_text().splitlines() if not line.startswith("#")]
    for name, lines in lists({"": project["dependencies"], **project["optional-dependencies"]}, pins, torch).items():
        (Path(folder) / name).write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
