"""The containers' command lines, run as processes: what the kubelet would do, without the containers."""

import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sluicegate_client import AsyncClient
from tests.deploy.helm.chart import Pod, render, render_with
from tests.interop.program import free_port
from tests.service.gateway_process import PythonProcess

GREEDY = {"max_tokens": 100, "temperature": 0, "ignore_eos": True}


class Kubelet:
    """Starts the containers of ``pod`` in ``folder`` instead of the paths that they have there; every port is any."""

    def __init__(self, pod: Pod, folder: Path, model: Path, **variables: str) -> None:
        self._pod = pod
        self._folder = folder
        self._model = str(model)
        # As the image has them, and the controller of a LeaderWorkerSet.
        self._variables = {"SLUICEGATE_MODEL": str(model), "HOME": str(folder), **variables}

    def container(self, name: str, *more: str) -> PythonProcess:
        container = self._pod.container(name)
        words = [self._here(word) for word in container["args"]]
        variables = {each["name"]: self._here(each["value"]) for each in container["env"]}
        module = "service" if container["command"] == ["sluicegate"] else "tests.e2e.fake_vllm"
        return PythonProcess(self._folder, module, *words, *more, environment=variables | self._variables)

    async def probe(self, name: str, address: str) -> int:
        """The exit code of an exec probe of the gateway, which is at ``address``."""
        words = self._pod.container("gateway")[name]["exec"]["command"][1:]
        words = [re.sub(r"^--address=.*", f"--address={address}", word) for word in words]
        async with PythonProcess(self._folder, "service", *words) as probe:
            return await probe.exit_code()

    def _here(self, word: str) -> str:
        word = word.replace("/run/sluicegate", str(self._folder)).replace("/mnt/models", self._model)
        word = re.sub(r"\$\((\w+)\)", lambda found: self._variables[found[1]], word)
        return re.sub(r"((grpc|health|metrics|admin)-address=)[\d.]+:\d+$", r"\g<1>127.0.0.1:0", word)


@pytest.fixture
def folder() -> Iterator[Path]:
    """What the containers of a pod share. Its path is short enough for a socket; no socket is left in the end."""
    with tempfile.TemporaryDirectory(prefix="sg") as path:
        yield Path(path)
        assert [*Path(path).glob("handshake*"), *Path(path).glob("sluicegate-*")] == []


async def _ready(gateway: PythonProcess) -> str:
    return (await gateway.until_logged(r"ready grpc=(\S+) model"))[1]


async def _end(*processes: PythonProcess) -> list[int]:
    """One after the other, as they are told in a pod; their exit codes."""
    codes = []
    for process in processes:
        process.send_signal(signal.SIGTERM)
        codes.append(await process.exit_code())
    return codes


async def test_a_pod_in_two_containers(folder: Path, smollm2_folder: Path) -> None:
    """Gateway and core meet in the shared folder. A core that is killed and started again costs no stream, a gateway
    that is finds its core with the model loaded. Told to end in the pod's order both end with 0."""
    kubelet = Kubelet(render("exec-probes").server, folder, smollm2_folder)
    async with AsyncExitStack() as containers:
        start = containers.enter_async_context
        gateway, core = await start(kubelet.container("gateway")), await start(kubelet.container("core"))
        client = await start(AsyncClient(await _ready(gateway)))
        health = (await gateway.until_logged(r"health on ([\d.]+:\d+)"))[1]
        assert await kubelet.probe("startupProbe", health) == await kubelet.probe("livenessProbe", health) == 0

        whole = await client.generate("Count:", **GREEDY)
        stream = client.stream("Count:", **GREEDY)
        text = (await anext(stream)).text
        core.send_signal(signal.SIGKILL)
        await core.exit_code()
        core = await start(kubelet.container("core"))
        assert text + "".join([delta.text async for delta in stream]) == whole.text

        gateway.send_signal(signal.SIGKILL)
        await gateway.exit_code()
        gateway = await start(kubelet.container("gateway", "--lame-duck=0"))
        again = await start(AsyncClient(await _ready(gateway)))
        assert (await again.generate("Count:", **GREEDY)).text == whole.text
        assert len(re.findall("loading the engine", core.log)) == 1
        assert await _end(gateway, core) == [0, 0]


async def test_a_group_of_hosts(folder: Path, smollm2_folder: Path) -> None:
    """The leader's core and the worker find each other by what the controller of a LeaderWorkerSet tells them."""
    rendered = render_with(
        "multiNode.enabled=true", "engine.tensorParallelSize=2", f"multiNode.masterPort={free_port()}"
    )
    leader, worker = (pod for pod in rendered.pods() if pod.owner["kind"] == "LeaderWorkerSet")
    group = {"LWS_LEADER_ADDRESS": "127.0.0.1", "LWS_GROUP_SIZE": "2"}
    hosts = [
        Kubelet(pod, folder, smollm2_folder, LWS_WORKER_INDEX=str(i), **group) for i, pod in enumerate((leader, worker))
    ]
    async with AsyncExitStack() as containers:
        start = containers.enter_async_context
        rank = await start(hosts[1].container("worker"))
        core = await start(hosts[0].container("core"))
        gateway = await start(hosts[0].container("gateway", "--lame-duck=0"))
        client = await start(AsyncClient(await _ready(gateway)))
        assert (await client.generate("The capital of France is", max_tokens=4, temperature=0)).text.strip() == "Paris."
        assert await _end(gateway, core) == [0, 0]
        assert await rank.exit_code() == 0


async def test_vllm_beside_our_gateway(folder: Path, smollm2_folder: Path) -> None:
    """vLLM's command line, its program a stand-in: its core dials the gateway of the same pod."""
    rendered = render_with(
        f'engine={{"type":"vllm","vllm":{{"handshakePort":{free_port()}}}}}',
        'multiNode={"enabled":true,"size":1}',
        'model={"source":"pvc","pvc":{"claimName":"models"}}',
    )
    kubelet = Kubelet(rendered.server, folder, smollm2_folder, LWS_LEADER_ADDRESS="127.0.0.1")
    async with AsyncExitStack() as containers:
        start = containers.enter_async_context
        gateway = await start(kubelet.container("gateway", "--lame-duck=0"))
        core = await start(kubelet.container("core"))
        client = await start(AsyncClient(await _ready(gateway)))
        assert (await client.generate("Hello", max_tokens=5)).usage.num_output_tokens == 5
        assert (await _end(gateway, core))[0] == 0
