"""The command lines of the containers, as the commands themselves read them."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import yaml

from core.cli import command as core_command
from service.cli import main
from service.cli.configurable import key_of
from service.cli.engine_options import CORE_KEYS
from tests.deploy.helm.chart import CHART, VARIANTS, Object, Rendered, refusal, render, render_with

each_variant = pytest.mark.parametrize("variant", VARIANTS)
_VARIABLES = {
    "LWS_LEADER_ADDRESS": "demo-group-0.demo-group.inference",
    "LWS_WORKER_INDEX": "1",
    "POD_IP": "10.1.2.3",
}


@pytest.fixture
def mounted(tmp_path: Path) -> Callable[[str], str]:
    """A word of a command line, with paths of the container made into paths that are there."""
    for name in (
        "tls/tls.crt",
        "tls/tls.key",
        "client-ca/ca.crt",
        "api-keys/keys",
        "admin-keys/keys",
        "server-ca/ca.crt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for name in ("client-tls/tls.crt", "client-tls/tls.key"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "config").mkdir()

    def word_here(word: str) -> str:
        word = word.replace("/etc/sluicegate", str(tmp_path)).replace("/opt/vllm/bin/python", sys.executable)
        return re.sub(r"^/mnt/models.*", str(tmp_path), word)

    return word_here


def command_lines(rendered: Rendered) -> Iterator[list[str]]:
    """Of every container that runs `sluicegate`, exec probes included, as the kubelet expands them."""
    for pod in rendered.pods():
        for each in pod.containers:
            if each["command"] == ["sluicegate"]:
                yield [_expanded(word) for word in each["args"]]
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if command := each.get(probe, {}).get("exec", {}).get("command"):
                    yield command[1:]


def _expanded(word: str) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: _VARIABLES[found[1]], word)


@each_variant
def test_command_lines_are_read(variant: str, mounted: Callable[[str], str], tmp_path: Path) -> None:
    """Every word is one that the command knows, and every value one that it takes; those of --config too."""
    rendered = render(variant)
    for each in rendered.of_kind("ConfigMap"):
        if "sluicegate.yaml" in each["data"]:
            (tmp_path / "config/sluicegate.yaml").write_text(each["data"]["sluicegate.yaml"])
    lines = [*command_lines(rendered)]
    assert lines
    with click.Context(main) as group:
        for name, *words in lines:
            _read(group, name, [mounted(word) for word in words])


def _read(group: click.Context, name: str, words: list[str]) -> None:
    if name == "core":
        _read_core(words)
    elif name != "health":  # which another test runs
        command = main.get_command(group, name)
        assert command is not None, name
        command.make_context(name, words, parent=group)


def _read_core(words: list[str]) -> None:
    """It warns of what it does not know, as vLLM's options. --config is read by who starts it."""
    own = [word for word in words if word.startswith("--") and not word.startswith("--config=")]
    context = core_command.make_context("core", [".", *own])
    assert context.args == []


@each_variant
def test_leader_and_worker_are_told_the_same(variant: str) -> None:
    """All but their rank, and where the leader's core finds its gateway."""
    rendered = render(variant)
    for worker in (each for pod in rendered.pods() for each in pod.containers if each["name"] == "worker"):
        core = rendered.server.container("core")
        assert worker["command"] == core["command"]
        assert worker["image"] == core["image"]
        only_core = [word for word in core["args"] if word not in worker["args"]]
        only_worker = [word for word in worker["args"] if word not in core["args"]]
        if core["command"] == ["sluicegate"]:
            assert only_worker == ["--headless"]
        else:
            assert only_worker == ["--node-rank=$(LWS_WORKER_INDEX)"]
            assert only_core[-1] == "--node-rank=0"


def test_ranks_of_torch_are_told_the_same() -> None:
    """The number of processes and where they meet; who is which says the LeaderWorkerSet."""
    rendered = render_with("multiNode.enabled=true", "engine.tensorParallelSize=4", "multiNode.masterPort=29600")
    for pod in rendered.pods():
        for each in pod.containers:
            if each["name"] in ("core", "worker"):
                assert {"--tensor-parallel-size=4", "--master-port=29600"} <= {*each["args"]}
                assert not [word for word in each["args"] if word.startswith(("--nnodes", "--node-rank"))]


def flags_of(words: list[str]) -> set[str]:
    ours = words[: words.index("--")] if "--" in words else words
    return {word.removeprefix("--").partition("=")[0] for word in ours if word.startswith("--")}


def _set_by_the_chart() -> set[str]:
    """Of all variants, but what extraArgs bring."""
    servers = ("gateway", "core", "serve")
    variants = [variant for variant in VARIANTS if "extraArgs" not in (CHART / f"ci/{variant}.yaml").read_text()]
    lines = [line for variant in variants for line in command_lines(render(variant)) if line[0] in servers]
    return {flag for line in lines for flag in flags_of(line)}


def _refused_in_config() -> set[str]:
    (own,) = re.findall("\\$own := [^`]+`([^`]+)`", (CHART / "templates/validate.yaml").read_text())
    return {*own.split()}


def test_config_cannot_say_what_the_chart_says() -> None:
    """The command line comes first: what a file said of the same flag would count for nothing, so it is refused."""
    assert _set_by_the_chart() - {"config"} <= _refused_in_config()
    assert "config.grpc-address: the chart sets it itself, from another value" in refusal('config={"grpc-address":"x"}')


def test_what_config_refuses_are_flags() -> None:
    """Every key on the list is one of a command's."""
    with click.Context(main) as group:
        commands = [main.get_command(group, name) for name in ("serve", "gateway")]
    known = {key_of(parameter) for command in commands if command for parameter in command.params} | {*CORE_KEYS}
    assert _refused_in_config() <= known | {"shutdown-timeout"}


def test_config_is_written_as_it_is() -> None:
    """Numbers stay numbers, lists lists."""
    settings = {"max-num-seqs": 64, "lora-modules": ["a=/a", "b=/b"], "enable-lora": True, "max-itl-stretch": 2.5}
    rendered = render_with(*(f"config.{key}={json.dumps(value)}" for key, value in settings.items()))
    (config,) = rendered.of_kind("ConfigMap")
    assert yaml.safe_load(config["data"]["sluicegate.yaml"]) == settings


def _server(rendered: Rendered, name: str) -> Object:
    return rendered.server.container(name)


def test_values_reach_the_command_line() -> None:
    """Names, times, logs."""
    rendered = render_with(
        'model.servedName="poet"',
        "connections.maxAgeSeconds=60",
        'log={"level":"debug","format":"text","access":true}',
        'listenHost="[::]"',
    )
    words = _server(rendered, "gateway")["args"]
    assert {"--served-model-name=poet", "--max-connection-age=60", "--access-log", "--log-level=debug"} <= {*words}
    assert "--grpc-address=[::]:50051" in words
    assert "--admin-address=127.0.0.1:50052" in words
    assert "--log-format=text" in _server(rendered, "core")["args"]


def test_extra_arguments_come_last_and_before_vllms() -> None:
    """So that they count; what follows -- is vLLM's."""
    rendered = render_with('mode="single"', 'serve.extraArgs=["--log-level=error"]')
    assert _server(rendered, "serve")["args"][-1] == "--log-level=error"
    words = render_with(
        'engine={"type":"vllm","vllm":{"extraArgs":["--enforce-eager"]}}',
        'model={"source":"pvc","pvc":{"claimName":"models"}}',
        'mode="single"',
        'serve.extraArgs=["--max-logprobs=5"]',
    ).server.container("serve")["args"]
    assert words.index("--max-logprobs=5") == words.index("--") - 1
    assert words[-1] == "--enforce-eager"


def test_words_stay_whole() -> None:
    """Whatever they hold: nothing of YAML's, of helm's or of a shell's is read in them."""
    odd = """it's "a": #b {{ .Values }} $(c)"""
    model = {"source": "pvc", "path": odd, "servedName": odd, "pvc": {"claimName": "123"}}
    text = {"name": "TEXT", "value": "one\n\n  three"}
    values = {"model": model, "core.extraArgs": [odd], "core.extraEnv": [text], "config.lora-modules": [f"a={odd}"]}
    rendered = render_with(*(f"{path}={json.dumps(value)}" for path, value in values.items()))
    core = _server(rendered, "core")["args"]
    assert core[1] == f"/mnt/models/{odd}"
    assert core[-1] == odd
    assert text in _server(rendered, "core")["env"]
    assert f"--served-model-name={odd}" in _server(rendered, "gateway")["args"]
    (config,) = rendered.of_kind("ConfigMap")
    assert yaml.safe_load(config["data"]["sluicegate.yaml"]) == {"lora-modules": [f"a={odd}"]}


def test_gateway_meets_vllms_core_at_the_loopback() -> None:
    """It listens where the core of the same pod dials, over tcp as vLLM does."""
    server = render("lws-vllm").server
    assert "--handshake-address=tcp://127.0.0.1:29550" in server.container("gateway")["args"]
    dial = {"--data-parallel-address=127.0.0.1", "--data-parallel-rpc-port=29550"}
    assert dial <= {*server.container("core")["args"]}
