"""What others made to find faults in charts and objects. Each raises an error that says what is wrong."""

import functools
import importlib.resources
import json
import tempfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.deploy.helm import crds
from tests.deploy.helm.chart import CHART, Object, Rendered, values_file
from tests.deploy.helm.program import helm
from tests.deploy.prometheus import promtool


def lint(variant: str) -> None:
    """`helm lint --strict`."""
    done = helm("lint", "--strict", str(CHART), "--values", str(values_file(variant)))
    assert done.returncode == 0, done.stdout + done.stderr


def kubernetes(rendered: Rendered, version: str) -> int:
    """Every object against Kubernetes' own schemas, unknown fields refused; returns how many."""
    checked = [each for found in rendered.objects for each in _known_to_kubernetes(found)]
    for each in checked:
        _validate(json.dumps(each), version)
    return len(checked)


@functools.cache
def _validate(each: str, version: str) -> None:
    """Many variants have the same Service."""
    found = json.loads(each)
    _schema(found["kind"], found["apiVersion"], version).validate(found)


@functools.cache
def _schema(kind: str, api_version: str, version: str) -> Draft202012Validator:
    """As kubernetes_validate.validate makes it, which reads a megabyte of definitions for every object."""
    group, _, number = api_version.rpartition("/")
    name = "-".join(part for part in (kind.lower(), group.partition(".")[0], number) if part)
    schema = _read_schema(version, name)
    return Draft202012Validator(schema, registry=Resource.from_contents(schema) @ _definitions(version))


@functools.cache
def _definitions(version: str) -> Registry[Any]:
    return (Resource.from_contents(_read_schema(version, "_definitions")) @ Registry()).crawl()


def _read_schema(version: str, name: str) -> Any:
    folder = importlib.resources.files(kubernetes_validate) / f"kubernetes-json-schema/v{version}.0-local-strict"
    return json.loads((folder / f"{name}.json").read_text())


def _known_to_kubernetes(each: Object) -> list[Object]:
    """The object itself; of a custom one the pods that it makes."""
    if not crds.is_custom(each):
        return [each]
    group = each["spec"].get("leaderWorkerTemplate", {})
    templates = [group[name] for name in ("leaderTemplate", "workerTemplate") if name in group]
    return [{"apiVersion": "v1", "kind": "PodTemplate", "template": template} for template in templates]


def custom_resources(rendered: Rendered) -> int:
    """Every custom resource against what is known of its fields; returns how many."""
    found = [each for each in rendered.objects if crds.is_custom(each)]
    for each in found:
        crds.check(each)
    return len(found)


def alert_rules(rendered: Rendered) -> int:
    """`promtool check rules` on every PrometheusRule; returns how many."""
    found = rendered.of_kind("PrometheusRule")
    for each in found:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "rules.yaml").write_text(yaml.safe_dump(each["spec"]))
            promtool("check", "rules", "rules.yaml", cwd=Path(folder))
    return len(found)
