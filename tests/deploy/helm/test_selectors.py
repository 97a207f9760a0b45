"""Who chooses whom, by labels and by names."""

import re
from typing import Any

import pytest

from tests.deploy.helm.chart import NAMESPACE, VARIANTS, Pod, Rendered, render, render_with

each_variant = pytest.mark.parametrize("variant", VARIANTS)


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """As Kubernetes reads a label selector."""
    expressions = selector.get("matchExpressions", ())
    assert all(each["operator"] == "In" for each in expressions)
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        labels.get(each["key"]) in each["values"] for each in expressions
    )


def selectors(rendered: Rendered) -> list[tuple[str, dict[str, Any]]]:
    """Of pods, with who has them: everything that should choose this release's servers."""
    found = [
        (each["kind"], each["spec"]["selector"])
        for each in rendered.of_kind("Deployment", "PodDisruptionBudget", "InferencePool")
    ]
    found += [("Service", {"matchLabels": each["spec"]["selector"]}) for each in rendered.of_kind("Service")]
    return found + [("NetworkPolicy", each["spec"]["podSelector"]) for each in rendered.of_kind("NetworkPolicy")]


@each_variant
def test_selectors_choose_the_servers(variant: str) -> None:
    """Workers are chosen, too, by what protects and what shields; the pod of `helm test` by nothing."""
    rendered = render(variant)
    for kind, selector in selectors(rendered):
        chosen = {pod.labels["app.kubernetes.io/component"] for pod in rendered.pods() if matches(selector, pod.labels)}
        assert "server" in chosen, kind
        assert chosen <= ({"server", "worker"} if kind in ("NetworkPolicy", "PodDisruptionBudget") else {"server"}), (
            kind
        )


# These have every kind of object with a selector.
@pytest.mark.parametrize("variant", ["split", "hardened", "lws-torch", "inferencepool", "keda"])
def test_selectors_leave_other_releases_alone(variant: str) -> None:
    """Two releases of the chart in one namespace share no pod, and no name."""
    mine, other = render(variant), render(variant, release="second")
    for kind, selector in selectors(mine):
        assert not [pod for pod in other.pods() if matches(selector, pod.labels)], kind
    if variant != "hardened":  # which has a name whatever the release is called
        assert not _names(mine) & _names(other)


def _names(rendered: Rendered) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in rendered.objects}


@each_variant
def test_selectors_outlive_a_version(variant: str) -> None:
    """They hold no label with a version of chart or image: a Deployment's selector can never be changed."""
    for kind, selector in selectors(render(variant)):
        assert not {"app.kubernetes.io/version", "helm.sh/chart"} & {*selector.get("matchLabels", {})}, kind


@each_variant
def test_service_monitor_finds_one_service(variant: str) -> None:
    """Not the headless one beside it, which would count every pod twice; its port is there."""
    rendered = render(variant)
    for monitor in rendered.of_kind("ServiceMonitor"):
        assert monitor["spec"]["namespaceSelector"]["matchNames"] == [NAMESPACE]
        (service,) = [
            each
            for each in rendered.of_kind("Service")
            if matches(monitor["spec"]["selector"], each["metadata"]["labels"])
        ]
        ports = {port["name"] for port in service["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports


@each_variant
def test_scaling_targets_are_there(variant: str) -> None:
    """What scales names a workload of this release, which then leaves the number of its pods alone."""
    rendered = render(variant)
    scalers = rendered.of_kind("HorizontalPodAutoscaler", "ScaledObject")
    workload = rendered.server.owner
    assert ("replicas" in workload["spec"]) == (not scalers)
    for scaler in scalers:
        target = scaler["spec"]["scaleTargetRef"]
        assert (target["apiVersion"], target["kind"]) == (workload["apiVersion"], workload["kind"])
        assert target["name"] == workload["metadata"]["name"]


def test_scaling_of_groups() -> None:
    """With several hosts to a model it is groups that are scaled."""
    rendered = render_with('multiNode={"enabled":true,"size":1}', "autoscaling.enabled=true")
    (scaler,) = rendered.of_kind("HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["kind"] == "LeaderWorkerSet"
    assert rendered.has("LeaderWorkerSet", scaler["spec"]["scaleTargetRef"]["name"])


def test_keda_asks_for_the_series_of_this_release() -> None:
    """By the labels that a ServiceMonitor's scrape adds: namespace and service."""
    rendered = render("keda")
    (scaler,) = rendered.of_kind("ScaledObject")
    services = {each["metadata"]["name"] for each in rendered.of_kind("Service")}
    for trigger in scaler["spec"]["triggers"]:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', trigger["metadata"]["query"]))
        assert labels["namespace"] == NAMESPACE
        assert labels["service"] in services


@each_variant
def test_routes_lead_to_what_is_there(variant: str) -> None:
    """To the pool, or to a port of a Service."""
    rendered = render(variant)
    for route in rendered.of_kind("GRPCRoute", "HTTPRoute"):
        for backend in (each for rule in route["spec"]["rules"] for each in rule["backendRefs"]):
            kind = backend.get("kind", "Service")
            (target,) = [each for each in rendered.of_kind(kind) if each["metadata"]["name"] == backend["name"]]
            if kind == "Service":
                assert backend["port"] in [port["port"] for port in target["spec"]["ports"]]


@each_variant
def test_pool_ports_are_the_servers(variant: str) -> None:
    """An InferencePool's target port is the gRPC port of its pods, in the clear."""
    rendered = render(variant)
    for pool in rendered.of_kind("InferencePool"):
        (port,) = pool["spec"]["targetPorts"]
        assert port["number"] == container_ports(rendered.server)["grpc"]
        assert pool["spec"]["appProtocol"] == "kubernetes.io/h2c"
        assert rendered.server.labels["llm-d.ai/engine-type"] == "vllm"


def container_ports(pod: Pod) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for each in pod.containers for port in each.get("ports", ())}


@each_variant
def test_services_lead_to_ports_of_the_pods(variant: str) -> None:
    """By name, and the gRPC port says how it is spoken to."""
    rendered = render(variant)
    for service in rendered.of_kind("Service"):
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in container_ports(rendered.server)
        has_tls = "tls" in {volume["name"] for volume in rendered.server.spec["volumes"]}
        protocols = {"grpc": "https" if has_tls else "kubernetes.io/h2c", "metrics": "http"}
        assert [port["appProtocol"] for port in service["spec"]["ports"]] == [
            protocols[port["name"]] for port in service["spec"]["ports"]
        ]


def test_metrics_are_not_for_everyone() -> None:
    """Who reaches a load balancer reaches gRPC alone: metrics have a Service of their own, without an address."""
    rendered = render_with('service.type="LoadBalancer"', "metrics.serviceMonitor.enabled=true")
    by_type = {each["spec"]["type"]: each for each in rendered.of_kind("Service") if "clusterIP" not in each["spec"]}
    assert [port["name"] for port in by_type["LoadBalancer"]["spec"]["ports"]] == ["grpc"]


@each_variant
def test_policies_name_ports_of_the_pods(variant: str) -> None:
    """gRPC, metrics, KV events; the ports of health and of operators are for nobody."""
    rendered = render(variant)
    for policy in rendered.of_kind("NetworkPolicy"):
        ports = [port["port"] for rule in policy["spec"]["ingress"] for port in rule.get("ports", ())]
        assert {*ports} == container_ports(rendered.server).keys() - {"health"}


def test_helm_test_is_let_in() -> None:
    """Whomever else a policy lets in."""
    rendered = render("hardened")
    (policy,) = rendered.of_kind("NetworkPolicy")
    (test,) = [pod for pod in rendered.pods() if pod.labels["app.kubernetes.io/component"] == "test"]
    assert any(
        matches(peer["podSelector"], test.labels)
        for peer in policy["spec"]["ingress"][0]["from"]
        if "namespaceSelector" not in peer
    )


def test_labels_are_each_there_once() -> None:
    """One that is said of everything and of an object comes from the object."""
    rendered = render_with(
        'commonLabels={"team":"a","release":"b"}',
        'podLabels.team="c"',
        'metrics.serviceMonitor={"enabled":true,"labels":{"release":"d"}}',
    )
    (monitor,) = rendered.of_kind("ServiceMonitor")
    assert (rendered.server.labels["team"], monitor["metadata"]["labels"]["release"]) == ("c", "d")
    assert rendered.text.count("team: c") == 1
    assert "team: a" not in rendered.text.partition("kind: Deployment")[2].partition("template:")[2].partition("---")[0]


def test_ranks_of_a_group_reach_each_other() -> None:
    """At any port, both ways, though nothing else comes or goes."""
    policy = 'networkPolicy={"enabled":true,"egress":{"restrict":true}}'
    rendered = render_with("multiNode.enabled=true", "engine.tensorParallelSize=2", policy)
    (policy,) = rendered.of_kind("NetworkPolicy")
    for direction, side in (("ingress", "from"), ("egress", "to")):
        (rule,) = [each for each in policy["spec"][direction] if "ports" not in each]
        (peer,) = rule[side]
        ranks = [pod for pod in rendered.pods() if pod.labels["app.kubernetes.io/component"] != "test"]
        assert len(ranks) == 2
        assert all(matches(peer["podSelector"], pod.labels) for pod in ranks)


def test_group_and_service_have_different_names() -> None:
    """A LeaderWorkerSet's controller makes a Service of the set's name, and would find ours."""
    rendered = render("lws-torch")
    (group,) = rendered.of_kind("LeaderWorkerSet")
    assert not rendered.has("Service", group["metadata"]["name"])


def test_long_names_stay_valid() -> None:
    """Whatever the release is called, names with a group's numbers fit into the 63 characters of a label; releases that
    differ in their last letter only have no name in common."""
    names = {name for _, name in _names(render("lws-torch", release="r" * 53))}
    assert all(len(f"{name}-10-100") <= 63 and not name.endswith("-") for name in names)
    assert not names & {name for _, name in _names(render("lws-torch", release="r" * 52 + "s"))}


def test_names_of_services() -> None:
    """They have no dots, which a release's may have."""
    services = render("lws-torch", release="my.llm").of_kind("Service")
    assert [each["metadata"]["name"] for each in services] == ["my-llm-sluicegate", "my-llm-sluicegate-headless"]
