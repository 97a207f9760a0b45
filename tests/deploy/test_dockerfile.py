"""What the Dockerfile promises, as far as it can be seen without building it; `make container-test` builds it."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from deploy.image.requirements import NOT_FOR_CORE

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
STAGES = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", DOCKERFILE, re.MULTILINE)
SCRIPTS = [f"deploy/image/{script}.sh" for script in ("slim", "embed")]
_OF_A_CORE = """
import json, sys
from importlib.metadata import packages_distributions
import core.cli, core.process, core.model.registry, core.model.runner, core.model.hf.model
import core.data_parallel.coordinator, core.embedding.load, service.cli.core
import core.executor.multi_process, core.executor.rank_process
names = packages_distributions()
print(json.dumps(sorted({name for module in sys.modules for name in names.get(module.partition(".")[0], ())})))
"""


def last_stage() -> str:
    return DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]


def test_hadolint_finds_nothing() -> None:
    """Not even what it calls information."""
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_the_stages_are_there() -> None:
    """The base is an argument, gateway and core are targets, and the default is none of them."""
    assert DOCKERFILE.count("ARG BASE_IMAGE=python:3.11-slim\n") == 1
    assert ("${BASE_IMAGE}", "python") in STAGES
    assert {("runtime", "gateway"), ("runtime", "core")} < {*STAGES}
    assert STAGES[-1] == ("runtime", "")
    assert 'CMD ["serve"]' in last_stage()


def test_users_are_numbers() -> None:
    """Kubernetes' runAsNonRoot cannot judge a name; group 0 is what arbitrary users have."""
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == ["65532:0"] * 3


def test_what_the_readme_and_the_chart_rely_on() -> None:
    """Ports, the signal that drains, a model at a fixed place, and a question for its health."""
    assert "STOPSIGNAL SIGTERM" in DOCKERFILE
    assert DOCKERFILE.count("EXPOSE 50051 9464") == 2
    assert "SLUICEGATE_MODEL=${EMBEDDED_MODEL:+/opt/models/}${EMBEDDED_MODEL:-/mnt/models}" in DOCKERFILE
    assert 'CMD ["sluicegate", "health",' in last_stage()


@pytest.mark.parametrize("file", ["Dockerfile", ".dockerignore", *(f"deploy/image/{p}.sh" for p in ("slim", "embed"))])
def test_no_host_is_named(file: str) -> None:
    """Whoever builds says where packages come from; pip's and apt's own configuration is the default."""
    assert not re.search(r"https?://|index-url [a-z]", (ROOT / file).read_text())


def test_the_context_has_what_is_copied() -> None:
    """.dockerignore lets in every file that a COPY names, and all that the wheel is made of."""
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
        for word in line.split()
        if word != "."
    }
    assert all(any(word == path or word.startswith(f"{path}/") for path in let_in) for word in copied)
    assert {"core", "service", "proto/gen", "clients/python", "bench", "setup.py", "pyproject.toml"} < let_in
    assert all((ROOT / path).exists() for path in let_in)


def test_a_core_imports_nothing_that_its_image_lacks() -> None:
    """Of the packages that only the gateway's image gets."""
    done = subprocess.run([sys.executable, "-c", _OF_A_CORE], cwd=ROOT, capture_output=True, check=True, timeout=120)
    assert not NOT_FOR_CORE & {*json.loads(done.stdout)}


def test_every_package_is_installed() -> None:
    """An installation, unlike this tree, has only the packages that pyproject.toml names."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    trees = {"core": ROOT, "service": ROOT, "bench": ROOT, "sluicegate_client": ROOT / "clients/python"}
    found = {
        ".".join(file.parent.relative_to(root).parts)
        for name, root in trees.items()
        for file in (root / name).rglob("*.py")
        if ast.parse(file.read_text()).body or file.name == "__init__.py"
    }
    assert found <= {*named}
