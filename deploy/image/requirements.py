"""``python requirements.py gateway | core | torch [REQUIREMENT]``: what the image of that name installs, one a line.

From pyproject.toml in the working directory; ``torch`` alone, since it may come from an index of its own, is
REQUIREMENT, or else the version that constraints.txt pins.
"""

import re
import sys
import tomllib
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


def requirements(image: str) -> list[str]:
    """Of ``gateway`` or ``core``; raises KeyError for any other image."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    of_all = project["dependencies"]
    for_core = [line for line in of_all if _name(line) not in NOT_FOR_CORE]
    return {"gateway": of_all, "core": for_core + project["optional-dependencies"]["core"]}[image]


def torch(requirement: str) -> list[str]:
    return [requirement or re.findall(r"^torch==.*$", Path("constraints.txt").read_text(), re.MULTILINE)[0]]


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]


if __name__ == "__main__":
    image, *rest = sys.argv[1:]
    print("\n".join(torch(*rest) if image == "torch" else requirements(image)))
