"""The containers' command lines, run as processes: what the kubelet would do, without the containers."""

import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sluicegate_client import AsyncClient
from tests.deploy.helm.chart import Pod, render
from tests.service.gateway_process import PythonProcess

GREEDY = {"max_tokens": 200, "temperature": 0, "ignore_eos": True}


class Kubelet:
    """Starts the containers of ``pod`` in ``folder`` instead of the paths that they have there; every port is any."""

    def __init__(self, pod: Pod, folder: Path, model: Path) -> None:
        self._pod = pod
        self._folder = folder
        # As the image has them.
        self._variables = {"SLUICEGATE_MODEL": str(model), "HOME": str(folder)}

    def container(self, name: str, *more: str) -> PythonProcess:
        container = self._pod.container(name)
        words = [re.sub(r"(address=)[\d.]+:\d+$", r"\g<1>127.0.0.1:0", self._here(word)) for word in container["args"]]
        variables = {each["name"]: self._here(each["value"]) for each in container["env"]}
        return PythonProcess(self._folder, "service", *words, *more, environment=variables | self._variables)

    async def probe(self, name: str, address: str) -> int:
        """The exit code of an exec probe of the gateway, which is at ``address``."""
        words = self._pod.container("gateway")[name]["exec"]["command"][1:]
        words = [re.sub(r"^--address=.*", f"--address={address}", word) for word in words]
        async with PythonProcess(self._folder, "service", *words) as probe:
            return await probe.exit_code()

    def _here(self, word: str) -> str:
        return word.replace("/run/sluicegate", str(self._folder))


@pytest.fixture
def kubelet(smollm2_folder: Path) -> Iterator[Kubelet]:
    """Of a pod in two containers. Its folder has a path short enough for a socket, and is empty at the end."""
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        yield Kubelet(render("exec-probes").server, Path(folder), smollm2_folder)
        assert [*Path(folder).glob("handshake*"), *Path(folder).glob("sluicegate-*")] == []


async def _ready(gateway: PythonProcess) -> str:
    return (await gateway.until_logged(r"ready grpc=(\S+) model"))[1]


async def test_a_pod_in_two_containers(kubelet: Kubelet) -> None:
    """Gateway and core meet in the shared folder. A core that is killed and started again costs no stream, a gateway
    that is finds its core with the model loaded. Told to end in the pod's order both end with 0."""
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
        for process in (gateway, core):
            process.send_signal(signal.SIGTERM)
            assert await process.exit_code() == 0
