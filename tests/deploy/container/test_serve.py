"""`docker run sluicegate`, as careful clusters run it: a root that is read-only, no capabilities, no user, bounds."""

import shutil
from pathlib import Path

import pytest

from sluicegate_client import Client
from tests.core.model.hf.tiny_transformers import write_model
from tests.deploy.container.podman import HARDENED, Container, PodmanError, podman, running
from tests.deploy.container.streams import PROMPT, answer, open_streams
from tests.deploy.container.transcript import say

pytestmark = pytest.mark.container


def test_streams(client: Client) -> None:
    """The embedded model answers, delta by delta, to a client outside."""
    deltas = [delta.text for delta in client.stream("The capital of France is", max_tokens=8, temperature=0)]
    say(f"The capital of France is{'|'.join(deltas)}")
    assert "Paris" in "".join(deltas)
    assert len(deltas) > 1


def test_health(server: Container) -> None:
    """Its own HEALTHCHECK finds a server that is ready healthy, and another service than there is unhealthy."""
    assert server.is_healthy()
    with pytest.raises(PodmanError, match="nobody"):
        server.execute("sluicegate", "health", "--service=nobody")


def test_nothing_is_left_of_root(server: Container) -> None:
    """The process is of the user that was asked for, has no capability and cannot write to its root."""
    status = server.execute("cat", "/proc/1/status")
    assert "Uid:\t12345\t12345" in status
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    assert server.execute("sh", "-c", "touch /opt/sluicegate/x 2>/dev/null || echo refused") == "refused"


def test_published_port(image: str) -> None:
    """Without any option but a port it serves; Prometheus is answered, too."""
    with running(image, options=["--publish=127.0.0.1::50051", "--publish=127.0.0.1::9464"]) as container:
        container.until_logged("ready grpc=")
        with Client(container.published(50051)) as client:
            assert client.generate(PROMPT, max_tokens=4).usage.num_output_tokens == 4
        assert "vllm:num_requests_running" in container.execute("python", "-c", _SCRAPE)


_SCRAPE = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9464/metrics').read().decode())"


def test_drains(image: str, undisturbed: str) -> None:
    """SIGTERM with open streams: unhealthy for new calls, every stream comes to its end, exit code 0."""
    with running(image) as container:
        container.until_logged("ready grpc=")
        with open_streams(f"{container.ip()}:50051", count=4) as streams:
            container.signal("TERM")
            said = container.until_logged("(?i)drain")
            say(f"{said.string.strip()}")
            assert not container.is_healthy()
            texts = streams.read_to_the_end()
        assert texts == [undisturbed] * 4
        assert container.exit_code() == 0
        say("4 streams complete, exit code 0")


def test_model_of_a_folder(image: str, smollm2_folder: Path, tmp_path: Path) -> None:
    """A folder with safetensors at /mnt/models is served, which transformers' classes compute."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(smollm2_folder / name, tmp_path)
    write_model(tmp_path, "mixtral", vocab_size=49_152, hidden_size=32)
    for path in (tmp_path, *tmp_path.iterdir()):
        path.chmod(0o755)
    mount = f"--volume={tmp_path}:/mnt/models/tiny:ro"
    with running(image, "serve", "/mnt/models/tiny", options=[*HARDENED, mount]) as container:
        say(container.until_logged("ready grpc=.*model=tiny.*")[0])
        assert len(answer(f"{container.ip()}:50051", max_tokens=5)) > 0


def test_model_of_an_image(image: str, model_image: str, undisturbed: str) -> None:
    """A model that is an image of its own, mounted at /mnt/models, as Kubernetes' image volumes are."""
    mount = f"--mount=type=image,source={model_image},destination=/mnt/models"
    options = [*HARDENED, mount, "--env=SLUICEGATE_MODEL=/mnt/models", "--env=SLUICEGATE_SERVED_MODEL_NAME=mounted"]
    with running(image, options=options) as container:
        say(container.until_logged("ready grpc=.*model=mounted.*")[0])
        assert answer(f"{container.ip()}:50051") == undisturbed


def test_hub_offline(image: str) -> None:
    """With HF_HUB_OFFLINE a model that is not there is an error at once, and no call out."""
    options = [*HARDENED, "--env=HF_HUB_OFFLINE=1", "--env=HF_HOME=/tmp/hub"]
    with running(image, "serve", "nobody/nothing", options=options) as container:
        assert container.exit_code() == 1
        say(container.log().strip().splitlines()[-1])
        assert "offline" in container.log().lower()


def test_pull_in_a_container(image: str) -> None:
    """`sluicegate pull` finds pip, which an init container needs."""
    assert podman("run", "--rm", "--entrypoint=python", image, "-m", "pip", "--version").startswith("pip ")
