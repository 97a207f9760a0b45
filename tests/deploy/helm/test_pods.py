"""What a pod is made of: ports, probes, volumes, security, and how it ends."""

import pytest

from tests.deploy.helm.chart import VARIANTS, Object, Pod, render, render_with
from tests.deploy.helm.test_selectors import container_ports

each_variant = pytest.mark.parametrize("variant", VARIANTS)
_RESTRICTED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"} | {
    "projected",
    "secret",
}


def pods(variant: str) -> list[Pod]:
    return render(variant).pods()


@each_variant
def test_port_names(variant: str) -> None:
    """At most 15 characters, each once in a pod, as each number."""
    for pod in pods(variant):
        ports = [port for each in pod.containers for port in each.get("ports", ())]
        names = [port["name"] for port in ports]
        assert len({*names}) == len(names)
        assert len({port["containerPort"] for port in ports}) == len(ports)
        assert all(len(name) <= 15 for name in names)


@each_variant
def test_probes(variant: str) -> None:
    """Startup and readiness ask for readiness, liveness for liveness, at the port that has neither TLS nor keys."""
    server = render(variant).server
    (probed,) = [each for each in server.containers if "startupProbe" in each]
    health = container_ports(Pod(server.owner, server.metadata, {"containers": [probed]}))["health"]
    assert f"--health-address={_host(probed)}:{health}" in probed["args"]
    for name, service in (
        ("startupProbe", "readiness"),
        ("readinessProbe", "readiness"),
        ("livenessProbe", "liveness"),
    ):
        probe = probed[name]
        if "grpc" in probe:
            assert probe["grpc"] == {"port": health, "service": service}
        else:
            program, command, *flags = probe["exec"]["command"]
            assert (program, command) == ("sluicegate", "health")
            assert flags == [f"--address=127.0.0.1:{health}", f"--service={service}"]


def _host(container: Object) -> str:
    (address,) = [word for word in container["args"] if word.startswith("--grpc-address=")]
    return address.removeprefix("--grpc-address=").rpartition(":")[0]


@each_variant
def test_start_may_take_as_long_as_loading(variant: str) -> None:
    """The startup probe gives up after the gateway would."""
    (probed,) = [each for each in render(variant).server.containers if "startupProbe" in each]
    (flag,) = [word for word in probed["args"] if word.startswith("--core-load-timeout=")]
    probe = probed["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > float(flag.partition("=")[2])


def test_rollouts_wait_for_large_models() -> None:
    """A Deployment gives up after the startup probe, which gives up after the load; a short load is probed once."""
    server = render_with("model.loadTimeoutSeconds=3600").server
    assert server.owner["spec"]["progressDeadlineSeconds"] > 3660
    probed = render_with("model.loadTimeoutSeconds=1", "probes.startup.periodSeconds=600").server.container("gateway")
    assert probed["startupProbe"]["failureThreshold"] == 1


@each_variant
def test_liveness_outlasts_a_busy_moment(variant: str) -> None:
    """It takes half a minute of silence to be killed."""
    (probed,) = [each for each in render(variant).server.containers if "livenessProbe" in each]
    assert probed["livenessProbe"]["periodSeconds"] * probed["livenessProbe"]["failureThreshold"] >= 30


@each_variant
def test_mounts_name_volumes(variant: str) -> None:
    """Every mount has its volume, every volume is mounted, and no path is mounted twice; no secret by subPath."""
    for pod in pods(variant):
        volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
        assert len(volumes) == len(pod.spec["volumes"])
        mounts = [mount for each in pod.containers for mount in each["volumeMounts"]]
        assert {mount["name"] for mount in mounts} == {*volumes}
        for each in pod.containers:
            paths = [mount["mountPath"] for mount in each["volumeMounts"]]
            assert len({*paths}) == len(paths)
        assert not [each for each in mounts if "subPath" in each and "secret" in volumes[each["name"]]]


@each_variant
def test_writable_folders(variant: str) -> None:
    """The root is read-only; HOME and /tmp are not, nor TMPDIR, and all are bounded."""
    for pod in pods(variant):
        volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
        for each in pod.containers:
            paths = {mount["mountPath"]: volumes[mount["name"]] for mount in each["volumeMounts"]}
            environment = {variable["name"]: variable.get("value") for variable in each["env"]}
            for path in ("/tmp", environment["HOME"], environment.get("TMPDIR", "/tmp")):
                assert "sizeLimit" in paths[path]["emptyDir"], path


@each_variant
def test_restricted_pod_security(variant: str) -> None:
    """All that the standard `restricted` asks for, and a read-only root and no token beside it."""
    for pod in pods(variant):
        assert pod.spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & {*pod.spec}
        kinds = {kind for volume in pod.spec["volumes"] for kind in volume if kind != "name"}
        # An image is no volume of `restricted`: README.md and values.yaml say so.
        assert kinds - ({"image"} if variant == "image-volume" else set()) <= _RESTRICTED_VOLUMES
        security = pod.spec["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security.get("runAsUser") != 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in pod.containers:
            assert each["securityContext"]["allowPrivilegeEscalation"] is False
            assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert each["securityContext"]["readOnlyRootFilesystem"] is True
            assert not any("hostPort" in port for port in each.get("ports", ()))


@each_variant
def test_images_and_resources(variant: str) -> None:
    """Every image has a version or a digest, every container asks for CPU and memory and has a limit of memory."""
    for pod in pods(variant):
        for each in pod.containers:
            assert "@sha256:" in each["image"] or ":" in each["image"].rpartition("/")[2]
            assert not each["image"].endswith(":latest")
            assert {*each["resources"]["requests"]} >= {"cpu", "memory"}
            assert "memory" in each["resources"]["limits"]


@each_variant
def test_variables_of_services_stay_out(variant: str) -> None:
    """A Service named sluicegate would give pods SLUICEGATE_PORT, which reads like a setting."""
    assert all(pod.spec["enableServiceLinks"] is False for pod in pods(variant))


def seconds_before_sigterm(container: Object) -> int:
    return container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)


def flag(container: Object, name: str) -> float:
    (word,) = [word for word in container["args"] if word.startswith(f"--{name}=")]
    return float(word.partition("=")[2])


def _gateway(server: Pod) -> Object:
    (gateway,) = [each for each in server.containers if "livenessProbe" in each]
    return gateway


def refusing(server: Pod) -> float:
    """Seconds until it takes no calls."""
    return seconds_before_sigterm(_gateway(server)) + flag(_gateway(server), "lame-duck")


def drain(server: Pod) -> float:
    return flag(_gateway(server), "drain-timeout")


@each_variant
def test_grace_covers_the_drain(variant: str) -> None:
    """terminationGracePeriodSeconds > preStop + lame duck + drain + the 10 s that `serve` gives its cores."""
    server = render(variant).server
    assert server.spec["terminationGracePeriodSeconds"] > refusing(server) + drain(server) + 10


@each_variant
def test_cores_outlast_their_gateway(variant: str) -> None:
    """One in a container or pod of its own is told to end when the gateway refuses calls, and has longer for it."""
    rendered = render(variant)
    refused = refusing(rendered.server)
    drained = refused + drain(rendered.server)
    for pod in rendered.pods():
        for each in pod.containers:
            if each["name"] not in ("core", "worker"):
                continue
            told = seconds_before_sigterm(each)
            ends = told + (flag(each, "shutdown-timeout") if _drains(each) else 0)
            assert told > refused
            assert drained <= ends <= pod.spec["terminationGracePeriodSeconds"]


def _drains(container: Object) -> bool:
    """All but vLLM's workers."""
    return container["command"] == ["sluicegate"] or container["name"] == "core"


def test_grace_is_a_sum() -> None:
    """Of what is configured; the gateway has a preStop hook if it is asked for."""
    assert "lifecycle" not in render("split").server.container("gateway")
    server = render_with("shutdown.preStopSeconds=5", "shutdown.lameDuckSeconds=30", "shutdown.drainSeconds=600").server
    assert server.spec["terminationGracePeriodSeconds"] == 5 + 30 + 600 + 20
    assert seconds_before_sigterm(server.container("gateway")) == 5
    assert flag(server.container("core"), "shutdown-timeout") == 610


def test_split_pods_share_a_folder() -> None:
    """The handshake's, where the gateway's own sockets lie, too: 0700, so both containers are of one user."""
    server = render("split").server
    gateway, core = server.container("gateway"), server.container("core")
    (address,) = [word for word in gateway["args"] if word.startswith("--handshake-address=ipc://")]
    assert address in core["args"]
    folder = address.removeprefix("--handshake-address=ipc://").rpartition("/")[0]
    assert {"name": "TMPDIR", "value": folder} in gateway["env"]
    for each in (gateway, core):
        assert {"name": "run", "mountPath": folder} in each["volumeMounts"]
        assert "runAsUser" not in each["securityContext"]


def test_devices_go_to_what_computes() -> None:
    """The core has the GPU, the gateway has none, and limits that were given stay."""
    server = render("gpu").server
    assert server.container("core")["resources"]["limits"] == {"memory": "32Gi", "nvidia.com/gpu": 1}
    assert "nvidia.com/gpu" not in server.container("gateway")["resources"]["limits"]
    assert "--device=cuda" in server.container("core")["args"]


@each_variant
def test_config_changes_restart_pods(variant: str) -> None:
    """A pod with a configuration has its checksum."""
    server = render(variant).server
    has_config = "config" in {volume["name"] for volume in server.spec["volumes"]}
    assert ("checksum/config" in server.metadata["annotations"]) == has_config


def test_checksum_is_of_the_config() -> None:
    """Another configuration, another checksum."""

    def checksum(value: int) -> str:
        return render_with(f"config.max-num-seqs={value}").server.metadata["annotations"]["checksum/config"]

    assert checksum(8) != checksum(16)
    assert checksum(8) == checksum(8)
