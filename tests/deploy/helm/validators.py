"""What others made to find faults in charts and objects. Each raises an error that says what is wrong."""

import functools
import json
import tempfile
from pathlib import Path

import kubernetes_validate
import yaml

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
    """Many variants have the same Service: its schema is read from a file of a megabyte, every time."""
    kubernetes_validate.validate(json.loads(each), version, strict=True)


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
