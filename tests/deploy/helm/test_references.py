"""What objects name has to be there: of this release, or made beforehand by whoever was told so."""

import re
from typing import Any

import pytest
import yaml

from tests.deploy.helm.chart import CHART, VARIANTS, Object, render, render_with, values_file

each_variant = pytest.mark.parametrize("variant", VARIANTS)


def _found(each: Any, key: str) -> list[Any]:
    """Every value of ``key``, however deep."""
    if isinstance(each, dict):
        return [value for name, value in each.items() if name == key] + [
            found for value in each.values() for found in _found(value, key)
        ]
    return [found for value in each for found in _found(value, key)] if isinstance(each, list) else []


def _specs(variant: str) -> list[Object]:
    return [pod.spec for pod in render(variant).pods()]


@each_variant
def test_secrets_and_claims_are_the_users(variant: str) -> None:
    """The chart makes no secret and no claim: every name stands in the values."""
    values = values_file(variant).read_text()
    for spec in _specs(variant):
        names = [secret["secretName"] for secret in _found(spec, "secret")]
        names += [reference["name"] for reference in _found(spec, "secretKeyRef")]
        names += [claim["claimName"] for claim in _found(spec, "persistentVolumeClaim")]
        names += [secret["name"] for secret in spec.get("imagePullSecrets", ())]
        for name in names:
            assert re.search(rf"\b{re.escape(name)}\b", values), name


@each_variant
def test_config_maps_are_there(variant: str) -> None:
    """Each that a pod mounts is one of the release's."""
    rendered = render(variant)
    for spec in _specs(variant):
        for reference in _found(spec, "configMap"):
            assert rendered.has("ConfigMap", reference["name"])


@each_variant
def test_service_account_is_there(variant: str) -> None:
    """The release's own, without a token, or the namespace's default."""
    rendered = render(variant)
    name = rendered.server.spec["serviceAccountName"]
    if name != "default":
        assert rendered.has("ServiceAccount", name)
        assert rendered.of_kind("ServiceAccount")[0]["automountServiceAccountToken"] is False


@each_variant
def test_no_secret_is_in_the_open(variant: str) -> None:
    """Keys and tokens come from secrets: none in variables' values, in arguments, in a ConfigMap."""
    rendered = render(variant)
    assert not rendered.of_kind("Secret")
    for spec in _specs(variant):
        for each in [*spec.get("initContainers", ()), *spec["containers"]]:
            for variable in each["env"]:
                if re.search("KEY|TOKEN", variable["name"]):
                    assert "secretKeyRef" in variable["valueFrom"]


def test_hub_token_is_the_init_containers_alone() -> None:
    """Who serves needs none, and is told to stay offline."""
    server = render("init-pull").server
    names = {each["name"]: {variable["name"] for variable in each["env"]} for each in server.containers}
    assert "HF_TOKEN" in names["pull"]
    assert all("HF_TOKEN" not in names[name] and "HF_HUB_OFFLINE" in names[name] for name in ("gateway", "core"))


def test_pulled_models_are_found() -> None:
    """Who pulls and who serves name the same model and the same cache; only who pulls may write."""
    for model, cache in (("Qwen/Qwen3-0.6B", "HF_HOME"), ("gemma3-270m", "XDG_CACHE_HOME")):
        server = render_with(f'model={{"source":"pull","name":"{model}"}}').server
        for name in ("pull", "gateway", "core"):
            each = server.container(name)
            assert each["args"][1] == model
            (mount,) = [mount for mount in each["volumeMounts"] if mount["name"] == "model"]
            assert _variables(each)[cache].startswith(mount["mountPath"])
            assert mount.get("readOnly", False) == (name != "pull")


def _variables(container: Object) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def test_vllm_may_write_to_its_cache() -> None:
    """Which is in XDG_CACHE_HOME, or else in HOME: not where the model is, which is read-only for it."""
    assert "XDG_CACHE_HOME" not in _variables(render("vllm").server.container("serve"))


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        ((), None),
        (('model={"source":"pvc","pvc":{"claimName":"m"}}',), "/mnt/models"),
        (('model={"source":"pvc","path":"a/b.gguf","pvc":{"claimName":"m"}}',), "/mnt/models/a/b.gguf"),
        (('model={"source":"image","path":"q","image":{"reference":"r:1"}}',), "/mnt/models/q"),
    ],
)
def test_model_argument(settings: tuple[str, ...], model: str | None) -> None:
    """Where the volume has it; the embedded one is the image's to name."""
    for name in ("gateway", "core"):
        word = render_with(*settings).server.container(name)["args"][1]
        assert (word == model) if model else word.startswith("--")


def test_version_of_the_image() -> None:
    """By default that of the chart's appVersion, which is the project's."""
    pyproject = (CHART.parents[2] / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"$', pyproject, re.MULTILINE)
    assert version is not None
    assert render("split").server.container("core")["image"] == f"sluicegate:{version[1]}"


def test_images_without_an_engine_pull_and_call() -> None:
    """In split mode the init container and the pod of `helm test` run from the gateway's image."""
    rendered = render_with('gateway.image={"repository":"edge"}', 'model={"source":"pull","name":"gemma3-270m"}')
    test = next(pod for pod in rendered.pods() if pod.labels["app.kubernetes.io/component"] == "test")
    assert {each["image"] for each in [*test.containers, rendered.server.container("pull")]} == {"edge:0.1.0"}


def test_image_of_its_own() -> None:
    """A container's own repository does not get the digest of the other image."""
    digest = "sha256:" + "a" * 64
    server = render_with(f'image.digest="{digest}"', 'gateway.image={"repository":"edge"}').server
    assert server.container("core")["image"] == f"sluicegate@{digest}"
    assert server.container("gateway")["image"] == "edge:0.1.0"


def test_adapter_offers_what_the_autoscaler_asks_for() -> None:
    """The rules for prometheus-adapter in the documents make vLLM's names into those of the HorizontalPodAutoscaler."""
    document = (CHART.parents[2] / "docs/kubernetes.md").read_text()
    (block,) = [text for text in re.findall(r"```yaml\n(.*?)```", document, re.DOTALL) if "seriesQuery" in text]
    offered = set()
    for rule in yaml.safe_load(block)["rules"]["custom"]:
        series = rule["seriesQuery"].partition("{")[0]
        offered.add(re.sub(rule["name"]["matches"], rule["name"]["as"].replace("${1}", r"\1"), series))
    (scaler,) = render("autoscaling").of_kind("HorizontalPodAutoscaler")
    assert {metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"]} == offered
