"""KV events: told to whoever publishes, open where it publishes, and to the router alone."""

import json
import re

import pytest

from core.wire.kv_endpoint import endpoint_of_rank, is_listened_at
from tests.deploy.helm.chart import Object, Rendered, render, render_with
from tests.deploy.helm.test_selectors import container_ports, matches

_ON = 'kvEvents={"enabled":true,"port":5600,"replayPort":5700,"topic":"kv@$(POD_IP):50051@poet"}'
_VLLM = ('engine.type="vllm"', 'model={"source":"pvc","pvc":{"claimName":"models"}}')
_SETTINGS = [
    ("core", ()),
    ("core", ('listenHost="[::]"',)),
    ("core", ("multiNode.enabled=true", "engine.tensorParallelSize=2")),
    ("core", (*_VLLM, 'multiNode={"enabled":true,"size":1}')),
    ("serve", ('mode="single"',)),
    ("serve", ('mode="single"', "config.data-parallel-size=3")),
    ("serve", ('mode="single"', *_VLLM)),
]


def _told(container: Object) -> dict[str, str]:
    """Endpoint, replay_endpoint and topic, in our words or in vLLM's."""
    words = dict(word.removeprefix("--").split("=", 1) for word in container["args"] if "=" in word)
    if "kv-events-config" in words:
        told = json.loads(words["kv-events-config"])
        assert (told.pop("enable_kv_cache_events"), told.pop("publisher")) == (True, "zmq")
        return told
    names = {name: f"kv-events-{name.replace('_', '-')}" for name in ("endpoint", "replay_endpoint", "topic")}
    return {name: words[flag] for name, flag in names.items()}


def _ports(container: Object) -> dict[str, int]:
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
    return {name: number for name, number in ports.items() if name.startswith("kv-")}


@pytest.mark.parametrize(("publisher", "settings"), _SETTINGS)
def test_ports_are_where_cores_publish(publisher: str, settings: tuple[str, ...]) -> None:
    """The one container that has the cores listens at a port and a replay port for each, which it names; the topic is
    whole, and the variable in it is known."""
    rendered = render_with(_ON, *settings)
    found = [each for pod in rendered.pods() for each in pod.containers if _ports(each)]
    assert [each["name"] for each in found] == [publisher]
    told = _told(found[0])
    assert told["topic"] == "kv@$(POD_IP):50051@poet"
    assert "POD_IP" in {variable["name"] for variable in found[0]["env"]}
    assert is_listened_at(told["endpoint"])
    ranks = range(3 if "config.data-parallel-size=3" in settings else 1)
    endpoints = [
        endpoint_of_rank("endpoint", told[name], rank) for name in ("endpoint", "replay_endpoint") for rank in ranks
    ]
    assert sorted(_ports(found[0]).values()) == sorted(int(each.rpartition(":")[2]) for each in endpoints)


def test_off_by_default() -> None:
    """No flag, no port."""
    assert not re.search("kv-(events|replay)", render("split").text)


def _let_in(rendered: Rendered, labels: dict[str, str]) -> set[int]:
    """Ports that pods of the namespace with ``labels`` reach."""
    (policy,) = rendered.of_kind("NetworkPolicy")
    numbers = container_ports(rendered.server)
    return {
        numbers[port["port"]]
        for rule in policy["spec"]["ingress"]
        if any(matches(peer["podSelector"], labels) for peer in rule["from"] if "namespaceSelector" not in peer)
        for port in rule["ports"]
    }


def test_endpoint_picker_reaches_the_events() -> None:
    """It and nobody else, at both ports, beside the metrics."""
    rendered = render("inferencepool")
    assert _let_in(rendered, {"app": "sluicegate-epp"}) == {9464, 5557, 5558}
    assert _let_in(rendered, {"app": "another"}) == set()


def test_router_reaches_every_core() -> None:
    """Of several in a pod, too."""
    policy = 'networkPolicy={"enabled":true,"kvEventsFrom":[{"podSelector":{"matchLabels":{"app":"router"}}}]}'
    grpc = 'networkPolicy.grpcFrom=[{"namespaceSelector":{}}]'
    rendered = render_with(_ON, policy, grpc, 'mode="single"', "config.data-parallel-size=2")
    assert _let_in(rendered, {"app": "router"}) == {5600, 5601, 5700, 5701}
