"""The chart as it is rendered: objects, and what is looked for in them."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.deploy.helm.program import helm

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy/helm/sluicegate"
VARIANTS = tuple(sorted(path.stem for path in (CHART / "ci").glob("*.yaml")))
RELEASE, NAMESPACE = "demo", "inference"
KUBERNETES = ("1.31", "1.36")
"""Validated for."""

Object = dict[str, Any]


class Pod(NamedTuple):
    """A pod or a pod template, with the object that it is in."""

    owner: Object
    metadata: Object
    spec: Object

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata["labels"]

    @property
    def containers(self) -> list[Object]:
        return [*self.spec.get("initContainers", ()), *self.spec["containers"]]

    @property
    def is_server(self) -> bool:
        return self.labels["app.kubernetes.io/component"] == "server"

    def container(self, name: str) -> Object:
        return next(container for container in self.containers if container["name"] == name)


@dataclass(frozen=True)
class Rendered:
    """What one variant comes to."""

    text: str
    objects: tuple[Object, ...]

    def of_kind(self, *kinds: str) -> list[Object]:
        return [each for each in self.objects if each["kind"] in kinds]

    def pods(self) -> list[Pod]:
        return [
            Pod(owner, template["metadata"], template["spec"]) for owner in self.objects for template in _pods(owner)
        ]

    @property
    def server(self) -> Pod:
        (found,) = [pod for pod in self.pods() if pod.is_server]
        return found

    def has(self, kind: str, name: str) -> bool:
        return any(each["metadata"]["name"] == name for each in self.of_kind(kind))


def _pods(owner: Object) -> Iterator[Object]:
    if owner["kind"] == "Pod":
        yield owner
    elif owner["kind"] == "Deployment":
        yield owner["spec"]["template"]
    elif owner["kind"] == "LeaderWorkerSet":
        group = owner["spec"]["leaderWorkerTemplate"]
        yield from (group["leaderTemplate"], group["workerTemplate"])


def values_file(variant: str) -> Path:
    return CHART / "ci" / f"{variant}.yaml"


def template(*arguments: str, release: str = RELEASE) -> str:
    """Raises AssertionError with what helm says if it refuses."""
    done = helm("template", release, str(CHART), "--namespace", NAMESPACE, *arguments)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


@functools.cache
def render(variant: str, release: str = RELEASE) -> Rendered:
    """For the newest version of Kubernetes; what is rendered for the others is the same, which a test holds."""
    return _read(template("--values", str(values_file(variant)), "--kube-version", KUBERNETES[-1], release=release))


def _read(text: str) -> Rendered:
    return Rendered(text, tuple(each for each in yaml.load_all(text, yaml.CSafeLoader) if each))


@functools.cache
def render_with(*settings: str) -> Rendered:
    """With ``--set-json`` for each of ``settings``."""
    return _read(template(*(word for setting in settings for word in ("--set-json", setting))))


def refusal(*settings: str) -> str:
    """What helm says to values that it does not take."""
    done = helm("template", RELEASE, str(CHART), *(word for setting in settings for word in ("--set-json", setting)))
    assert done.returncode != 0, f"{settings} were taken"
    return done.stderr
