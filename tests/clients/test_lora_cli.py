"""`sluicegate lora` and the client under it, against a server of its own."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from click.testing import CliRunner, Result

from sluicegate.v1.control_service_pb2_grpc import add_ControlServiceServicer_to_server
from sluicegate_client import AdminClient, AlreadyExistsError, NotFoundError
from sluicegate_client.lora_cli import lora
from tests.clients.fake_control import FakeControlService


@pytest.fixture
def address() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    add_ControlServiceServicer_to_server(FakeControlService(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def run(address: str, *arguments: str) -> Result:
    return CliRunner().invoke(lora, ["--admin-address", address, *arguments])


def test_adapters_come_and_go(address: str) -> None:
    """A relative path is one from here."""
    assert run(address, "load", "a", "/a").exit_code == 0
    assert run(address, "load", "b", "adapters/b").exit_code == 0
    listed = run(address, "list").output.splitlines()
    assert listed[0] == "a\t/a"
    assert listed[1].startswith("b\t/")
    assert listed[1].endswith("/adapters/b")
    assert run(address, "unload", "a").exit_code == 0
    assert run(address, "list").output.splitlines() == listed[1:]


def test_failures_are_one_line(address: str) -> None:
    """With the server's own message."""
    run(address, "load", "a", "/a")
    for arguments, message in (
        (("load", "a", "/b"), "Error: the name 'a' is taken"),
        (("unload", "x"), "Error: no LoRA adapter 'x' is loaded"),
    ):
        done = run(address, *arguments)
        assert (done.exit_code, done.output.strip()) == (1, message)


def test_the_client_raises_what_a_caller_can_catch(address: str) -> None:
    with AdminClient(address) as client:
        client.load_lora("a", "/a", timeout=10)
        assert client.list_loras() == {"a": "/a"}
        with pytest.raises(AlreadyExistsError):
            client.load_lora("a", "/a")
        client.unload_lora("a")
        with pytest.raises(NotFoundError):
            client.unload_lora("a")
