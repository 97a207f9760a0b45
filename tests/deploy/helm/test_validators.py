"""The ladder: helm's own lint, Kubernetes' schemas, what is known of custom resources, promtool."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import jsonschema
import pytest

from tests.deploy.helm import validators
from tests.deploy.helm.chart import (
    CHART,
    KUBERNETES,
    VARIANTS,
    Object,
    Rendered,
    render,
    template,
    values_file,
)
from tests.toolchain import require

each_variant = pytest.mark.parametrize("variant", VARIANTS)


@each_variant
def test_lint(variant: str) -> None:
    """`helm lint --strict` finds nothing."""
    validators.lint(variant)


@each_variant
@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes(variant: str, version: str) -> None:
    """Every object, and every pod of a custom one, is as Kubernetes' schema of that version has it."""
    assert validators.kubernetes(render(variant), version) >= 2


@each_variant
def test_custom_resources(variant: str) -> None:
    """Those of others have no field but what is theirs."""
    validators.custom_resources(render(variant))


@pytest.mark.parametrize("variant", ["monitoring", "hardened"])
def test_alert_rules(variant: str) -> None:
    """Promtool takes the rules as they are rendered."""
    require("promtool")
    assert validators.alert_rules(render(variant)) == 1


def test_oldest_kubernetes() -> None:
    """Chart.yaml's kubeVersion is the oldest that takes the defaults."""
    assert validators.kubernetes(render("split"), "1.30") >= 6
    assert template("--kube-version", "1.30") == template("--kube-version", KUBERNETES[-1])
    with pytest.raises(AssertionError, match=r"requires kubeVersion: >=1\.30"):
        template("--kube-version", "1.29")
    with pytest.raises(AssertionError, match=r"model.source image needs Kubernetes 1\.31 or newer, this is v1\.30"):
        template("--values", str(values_file("image-volume")), "--kube-version", "1.30")


def test_what_the_cluster_has_changes_nothing() -> None:
    """Who renders without a cluster gets what is installed in one, whatever its version and its custom resources: the
    only template that asks for either renders nothing."""
    asking = {path.name for path in (CHART / "templates").rglob("*.*") if ".Capabilities" in path.read_text()}
    assert asking == {"validate.yaml"}
    file = ("--values", str(values_file("hardened")))
    assert template(*file, "--api-versions", "monitoring.coreos.com/v1") == render("hardened").text


def _misspelt(rendered: Rendered, kind: str, change: Callable[[Object], object]) -> Rendered:
    objects = deepcopy(rendered.objects)
    change(next(each for each in objects if each["kind"] == kind))
    return replace(rendered, objects=objects)


def test_kubernetes_schema_sees_a_misspelt_field() -> None:
    """In an object of Kubernetes', and in the pods of a LeaderWorkerSet."""
    wrong = _misspelt(render("split"), "Deployment", lambda each: each["spec"]["template"]["spec"].update(volume=[]))
    with pytest.raises(jsonschema.ValidationError, match="volume"):
        validators.kubernetes(wrong, KUBERNETES[0])
    wrong = _misspelt(
        render("lws-torch"),
        "LeaderWorkerSet",
        lambda each: each["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"].update(volume=[]),
    )
    with pytest.raises(jsonschema.ValidationError, match="volume"):
        validators.kubernetes(wrong, KUBERNETES[0])


@pytest.mark.parametrize(
    ("variant", "kind"),
    [
        ("keda", "ScaledObject"),
        ("monitoring", "ServiceMonitor"),
        ("monitoring", "PrometheusRule"),
        ("lws-torch", "LeaderWorkerSet"),
        ("inferencepool", "InferencePool"),
        ("inferencepool", "HTTPRoute"),
        ("route", "GRPCRoute"),
    ],
)
def test_misspelt_fields_of_custom_resources_are_seen(variant: str, kind: str) -> None:
    """Of every kind that the chart renders."""
    validators.custom_resources(render(variant))
    with pytest.raises(Exception, match=r"selectr|has fields that its definition has not"):
        validators.custom_resources(_misspelt(render(variant), kind, lambda each: each["spec"].update(selectr={})))


def test_one_source() -> None:
    """The chart's rules and dashboard are those of deploy/: `make chart` copies them."""
    deploy = CHART.parents[1]
    for copy, source in {"alerts.yaml": "prometheus/alerts.yaml", "dashboard.json": "grafana/dashboard.json"}.items():
        assert (CHART / "files" / copy).read_bytes() == (deploy / source).read_bytes(), f"{copy}: run `make chart`"


def test_nothing_is_left_out() -> None:
    """No template prints an unset value as null or <no value>."""
    for variant in VARIANTS:
        text = render(variant).text
        assert "<no value>" not in text
        assert ": null" not in text.replace('"null"', ""), variant
