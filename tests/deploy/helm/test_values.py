"""Values: the schema knows them all, wrong ones are refused in words that help, and the README has them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.deploy.helm import validators
from tests.deploy.helm.chart import (
    CHART,
    KUBERNETES,
    NAMESPACE,
    RELEASE,
    VARIANTS,
    refusal,
    render_with,
    values_file,
)
from tests.deploy.helm.program import helm
from tests.deploy.helm.values_table import README, table, with_table

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    return SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _unknown(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Keys of ``values`` that ``schema`` does not name, and keys that it names and nobody explains."""
    properties = _resolved(schema).get("properties")
    if properties is None:
        return
    yield from (f"{path}{key}" for key in values.keys() - properties.keys())
    for key, value in values.items():
        if isinstance(value, dict) and key in properties:
            yield from _unknown(value, properties[key], f"{path}{key}.")


def test_schema_names_every_value() -> None:
    """By name, however deep; and what it names at the top are values, but for helm's own `global`, and `enabled`, by
    which a chart that has this one as a part may leave it out."""
    assert [*_unknown(VALUES, SCHEMA)] == []
    assert SCHEMA["properties"].keys() - VALUES.keys() == {"global", "enabled"}


def _unbounded(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    schema = _resolved(schema)
    if not {"type", "enum", "oneOf"} & {*schema}:
        yield path
    for key, value in schema.get("properties", {}).items():
        yield from _unbounded(value, f"{path}.{key}")


def test_schema_says_what_every_value_is() -> None:
    """A type, or the values that there are."""
    assert [*_unbounded(SCHEMA)] == []


def _open_objects(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    schema = _resolved(schema)
    if "properties" in schema and schema.get("additionalProperties") is not False:
        yield path
    for key, value in schema.get("properties", {}).items():
        yield from _open_objects(value, f"{path}.{key}")


def test_schema_takes_no_other_names() -> None:
    """A misspelt value is an error wherever the names are known."""
    assert [*_open_objects(SCHEMA)] == []


_BREAK_THE_SCHEMA = {
    'model.kvCacheMemory="2GB"': "'/model/kvCacheMemory': '2GB' does not match pattern",
    'model.path="/mnt/models/x"': "'/model/path': '/mnt/models/x' does not match pattern",
    'model.source="hub"': "'/model/source': value must be one of 'embedded', 'pull', 'pvc', 'image'",
    "modes=1": "additional properties 'modes' not allowed",
    'mode="both"': "'/mode': value must be one of 'split', 'single'",
    "replicaCount=-1": "'/replicaCount': minimum: got -1, want 0",
    "ports.grpc=70000": "'/ports/grpc': maximum: got 70,000, want 65,535",
    "shutdown.marginSeconds=5": "'/shutdown/marginSeconds': minimum: got 5, want 13",
    "tls.enabled=true": "'/tls/secretName': minLength: got 0, want 1",
    'core.resources.limits.memory="4 GB"': "'/core/resources/limits/memory': '4 GB' does not match pattern",
    'core.extraArgs="--seed=1"': "'/core/extraArgs': got string, want array",
    'config={"max_num_seqs":1}': "'max_num_seqs' does not match pattern",
    "inferencePool.enabled=true": "'/inferencePool/endpointPicker/name': minLength: got 0, want 1",
    "route.enabled=true": "'/route/parentRefs': minItems: got 0, want 1",
    "networkPolicy.grpcFrom=[]": "'/networkPolicy/grpcFrom': minItems: got 0, want 1",
    'core.resources.limits.cpu="half"': "'/core/resources/limits/cpu': 'half' does not match pattern",
    'fullnameOverride="a.b"': "'/fullnameOverride': 'a.b' does not match pattern",
    'nameOverride="a b"': "'/nameOverride': 'a b' does not match pattern",
    'podLabels={"app.kubernetes.io/component":"x"}': "invalid propertyName 'app.kubernetes.io/component'",
    'commonLabels={"helm.sh/chart":"x"}': "invalid propertyName 'helm.sh/chart'",
}


def test_wrong_values_are_all_named() -> None:
    """What the schema refuses is refused at once, each by its name and what would be right."""
    message = refusal(*_BREAK_THE_SCHEMA)
    assert [expected for expected in _BREAK_THE_SCHEMA.values() if expected not in message] == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (('model.source="pvc"',), "'/model/pvc/claimName': minLength: got 0, want 1"),
        (('model.source="pull"',), "'/model/name': minLength: got 0, want 1"),
        (('model.source="image"',), "'/model/image/reference': minLength: got 0, want 1"),
        (('replicaCount="2"',), "'/replicaCount': got string, want integer"),
        (('tls.clientCASecretName="ca"',), "tls.clientCASecretName needs tls.enabled"),
        (('image.tag="latest"',), "image.tag: latest is another image every day"),
        (('core.image={"tag":"latest"}',), "core.image.tag: latest is another image every day"),
        (('config={"max-num-seqs":{}}',), "'/config/max-num-seqs': 'oneOf' failed"),
        (("networkPolicy.grpcFrom=null",), "at '/networkPolicy': missing property 'grpcFrom'"),
        (("ports.health=50051",), "ports: each has to be another one"),
        (
            ('kvEvents={"enabled":true,"port":9464}',),
            "kvEvents: kv-events would be 9464, which another port of the pod is",
        ),
        (
            ("kvEvents.enabled=true", 'mode="single"', "config.data-parallel-size=2"),
            "kvEvents: kv-replay would be 5558, which another port of the pod is. Each core takes the next",
        ),
        (("kvEvents.enabled=true", "networkPolicy.enabled=true"), "networkPolicy.kvEventsFrom: kvEvents.enabled needs"),
        (('worker.image={"tag":"latest"}',), "worker.image.tag: latest is another image every day"),
        (
            ('strategy.rollingUpdate={"maxSurge":0}',),
            "strategy.rollingUpdate: with neither maxSurge nor maxUnavailable",
        ),
        (("multiNode.maxUnavailable=0",), "multiNode: with neither maxSurge nor maxUnavailable"),
        (('model={"source":"pull","name":"--x"}',), "'/model/name': '--x' does not match pattern"),
        (("autoscaling.enabled=true", "keda.enabled=true"), "autoscaling.enabled and keda.enabled: one of them"),
        (
            ("autoscaling.enabled=true", "autoscaling.minReplicas=9"),
            "autoscaling.minReplicas is 9, more than maxReplicas, 4",
        ),
        (("multiNode.enabled=true",), "1 processes do not part among multiNode.size 2 pods"),
        (("gpu.enabled=true", "engine.tensorParallelSize=4"), "gpu.count is 1, but each pod has 4 processes"),
        (("engine.pipelineParallelSize=2",), "engine.pipelineParallelSize is 2, but engine.type torch has none"),
        (('engine.type="vllm"', 'mode="single"'), "engine.type vllm needs a model that vLLM can load"),
        (
            ('engine.type="vllm"', 'model={"source":"pvc","pvc":{"claimName":"models"}}'),
            "its core does not dial a gateway that starts again. Set mode to single",
        ),
        (('config={"data-parallel-size":2}',), "in split mode a pod has one core; mode single starts several"),
        (
            (
                "inferencePool.enabled=true",
                'inferencePool.endpointPicker.name="epp"',
                'tls={"enabled":true,"secretName":"t"}',
            ),
            "inferencePool.appProtocol is kubernetes.io/h2c, which is without TLS, but tls.enabled is true",
        ),
    ],
)
def test_wrong_values(settings: tuple[str, ...], message: str) -> None:
    """Each is refused, by its name and what would be right."""
    assert message in refusal(*settings)


def test_release_that_begins_with_a_digit() -> None:
    """It is refused, since no Service may be called so, until it has another name."""
    arguments = ("template", "7b", str(CHART))
    assert "fullnameOverride: a Service's name begins with a letter" in helm(*arguments).stderr
    assert helm(*arguments, "--set", "fullnameOverride=llm").returncode == 0


NULLABLE = {
    "model.kvCacheMemory",
    "networkPolicy.metricsFrom",
    "podLabels",
    "topologySpreadConstraints",
    "strategy.rollingUpdate",
    "metrics.dashboard.labels",
    "inferencePool.appProtocol",
    "autoscaling.behavior",
    *(f"{command}.resources" for command in ("gateway", "core", "serve", "worker")),
    *(f"probes.{name}.{field}" for name in ("readiness", "liveness") for field in ("periodSeconds", "timeoutSeconds")),
    *(f"probes.{name}.failureThreshold" for name in ("readiness", "liveness")),
    "probes.startup.timeoutSeconds",
}
"""Values with a default that `null` may take away."""


def _defaults(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, bool]]:
    """Path of each default that is not empty, and whether the schema wants the value."""
    schema = _resolved(schema)
    for key, value in values.items():
        if "properties" not in schema or value in ("", [], {}) or f"{path}{key}" in NULLABLE:
            continue
        yield f"{path}{key}", key in schema.get("required", ())
        if isinstance(value, dict):
            yield from _defaults(value, schema["properties"][key], f"{path}{key}.")


def test_null_is_refused_or_means_nothing() -> None:
    """`null` takes a default away: the schema refuses it, or the objects are valid without."""
    assert [path for path, is_required in _defaults(VALUES, SCHEMA) if not is_required] == []
    features = ("autoscaling.enabled=true", "networkPolicy.enabled=true", "metrics.dashboard.enabled=true")
    empty = ("config", "gateway.image", "core.image", "commonLabels", "podAnnotations", "nodeSelector", "tolerations")
    rendered = render_with(*features, *(f"{path}=null" for path in (*NULLABLE, *empty)))
    assert validators.kubernetes(rendered, KUBERNETES[-1]) > 6
    assert ": null" not in rendered.text


@pytest.mark.parametrize(
    "settings",
    [
        ("core.resources.limits.cpu=0.5",),
        ('strategy.type="Recreate"',),
        ("enabled=true",),
        ('tls={"enabled":true,"secretName":"123"}', 'apiKeys.secretName="1e3"', 'priorityClassName="1"'),
        ('nameOverride="99"', 'serviceAccount.name="007"', 'model={"source":"pvc","pvc":{"claimName":"true"}}'),
    ],
)
def test_right_values(settings: tuple[str, ...]) -> None:
    """What Kubernetes takes is taken: fractions, names that look like numbers."""
    rendered = render_with(*settings)
    assert validators.kubernetes(rendered, KUBERNETES[-1]) > 5
    assert (
        "rollingUpdate" not in rendered.server.owner["spec"]["strategy"] or 'strategy.type="Recreate"' not in settings
    )


def test_readme_has_every_value() -> None:
    """Its table is what values.yaml says: `make chart` writes it."""
    assert README.read_text() == with_table(README.read_text()), "run `make chart`"
    assert table().count("\n") > 100


def test_readme_has_every_variant() -> None:
    """With a link to its file."""
    document = README.read_text()
    assert [variant for variant in VARIANTS if f"(ci/{variant}.yaml)" not in document] == []


def test_every_variant_says_what_it_is_for() -> None:
    """In its first line."""
    assert all(values_file(variant).read_text().startswith("# ") for variant in VARIANTS)


def _notes(variant: str) -> str:
    done = helm(
        "install",
        RELEASE,
        str(CHART),
        "--dry-run=client",
        "--namespace",
        NAMESPACE,
        "--values",
        str(values_file(variant)),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:\n")[2]


@pytest.mark.parametrize("variant", ["split", "minimal", "tls", "mtls", "hardened", "inferencepool", "lws-torch"])
def test_notes(variant: str) -> None:
    """They tell how to wait for it, how to reach it, and what it asks for; every object they name is there."""
    notes = _notes(variant)
    assert "kubectl --namespace inference wait pod" in notes
    assert "sluicegate generate" in notes
    values = yaml.safe_load(values_file(variant).read_text())
    assert ("--tls-ca" in notes) == ("tls" in values)
    assert ("SLUICEGATE_API_KEY" in notes) == ("apiKeys" in values)
    assert ("SLUICEGATE_ADMIN_KEY" in notes) == ("adminKeys" in values)
    assert ("--model-server-metrics-port" in notes) == ("inferencePool" in values)
    assert ("-headless." in notes) == (variant != "minimal")
    name = values.get("fullnameOverride", f"{RELEASE}-sluicegate")
    assert (f"pod/{name}-group-0" in notes) == ("multiNode" in values)
    assert f"service/{name} 50051:50051" in notes
