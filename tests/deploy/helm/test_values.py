"""Values: the schema knows them all, wrong ones are refused in words that help, and the README has them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.deploy.helm.chart import CHART, NAMESPACE, RELEASE, VARIANTS, refusal, values_file
from tests.deploy.helm.program import helm
from tests.deploy.helm.values_table import README, table, with_table

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


_PVC = ('model={"source":"pvc","pvc":{"claimName":"models"}}',)


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
    """By name, however deep; and what it names at the top are values, but for helm's own `global`."""
    assert [*_unknown(VALUES, SCHEMA)] == []
    assert SCHEMA["properties"].keys() - VALUES.keys() == {"global"}


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (('mode="both"',), "'/mode': value must be one of 'split', 'single'"),
        (("modes=1",), "additional properties 'modes' not allowed"),
        (('model.source="hub"',), "'/model/source': value must be one of 'embedded', 'pull', 'pvc', 'image'"),
        (('model.source="pvc"',), "'/model/pvc/claimName': minLength: got 0, want 1"),
        (('model.source="pull"',), "'/model/name': minLength: got 0, want 1"),
        (('model.source="image"',), "'/model/image/reference': minLength: got 0, want 1"),
        (('model.path="/mnt/models/x"',), "'/model/path': '/mnt/models/x' does not match pattern"),
        (('model.kvCacheMemory="2GB"',), "'/model/kvCacheMemory': '2GB' does not match pattern"),
        (("replicaCount=-1",), "'/replicaCount': minimum: got -1, want 0"),
        (('replicaCount="2"',), "'/replicaCount': got string, want integer"),
        (("ports.grpc=70000",), "'/ports/grpc': maximum: got 70,000, want 65,535"),
        (("shutdown.marginSeconds=5",), "'/shutdown/marginSeconds': minimum: got 5, want 13"),
        (("tls.enabled=true",), "'/tls/secretName': minLength: got 0, want 1"),
        (('tls.clientCASecretName="ca"',), "tls.clientCASecretName needs tls.enabled"),
        (('image.tag="latest"',), "image.tag: latest is another image every day"),
        (('core.image={"tag":"latest"}',), "core.image.tag: latest is another image every day"),
        (('core.resources.limits.memory="4 GB"',), "'/core/resources/limits/memory': '4 GB' does not match pattern"),
        (('core.extraArgs="--seed=1"',), "'/core/extraArgs': got string, want array"),
        (('config={"max_num_seqs":1}',), "'max_num_seqs' does not match pattern"),
        (('config={"max-num-seqs":{}}',), "'/config/max-num-seqs': 'oneOf' failed"),
        (("inferencePool.enabled=true",), "'/inferencePool/endpointPicker/name': minLength: got 0, want 1"),
        (("route.enabled=true",), "'/route/parentRefs': minItems: got 0, want 1"),
        (("networkPolicy.grpcFrom=[]",), "'/networkPolicy/grpcFrom': minItems: got 0, want 1"),
        (("autoscaling.enabled=true", "keda.enabled=true"), "autoscaling.enabled and keda.enabled: one of them"),
        (
            ("autoscaling.enabled=true", "autoscaling.minReplicas=9"),
            "autoscaling.minReplicas is 9, more than maxReplicas, 4",
        ),
        (("multiNode.enabled=true",), "1 processes do not part among multiNode.size 2 pods"),
        (("gpu.enabled=true", "engine.tensorParallelSize=4"), "gpu.count is 1, but each pod has 4 processes"),
        (("engine.pipelineParallelSize=2",), "engine.pipelineParallelSize is 2, but engine.type torch has none"),
        (('engine.type="vllm"', 'mode="single"'), "engine.type vllm needs a model that vLLM can load"),
        (('engine.type="vllm"', *_PVC), "its core does not dial a gateway that starts again. Set mode to single"),
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
    assert ("--model-server-metrics-port" in notes) == ("inferencePool" in values)
    assert ("-headless." in notes) == (variant != "minimal")
    name = values.get("fullnameOverride", f"{RELEASE}-sluicegate")
    assert (f"pod/{name}-group-0" in notes) == ("multiNode" in values)
    assert f"service/{name} 50051:50051" in notes
