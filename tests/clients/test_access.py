"""Clients and commands at a server that asks for TLS, a certificate and a key."""

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import grpc
import pytest
import trustme
from click.testing import CliRunner
from grpc_health.v1 import health, health_pb2_grpc

from sluicegate.v1.control_service_pb2_grpc import add_ControlServiceServicer_to_server
from sluicegate.v1.inference_service_pb2_grpc import add_InferenceServiceServicer_to_server
from sluicegate_client import (
    AdminClient,
    AsyncAdminClient,
    AsyncClient,
    Client,
    Retry,
    UnauthenticatedError,
    UnavailableError,
    tls_credentials,
)
from sluicegate_client.access import Access, access_options
from tests.clients.fake_control import FakeControlService
from tests.clients.fake_server import FakeInferenceService
from tests.clients.test_cli import SLUICEGATE

KEY = "key-0123456789abc"


class AskForKey(grpc.ServerInterceptor):  # type: ignore[type-arg]
    def intercept_service(self, continuation: Callable[..., Any], details: Any) -> Any:
        if ("authorization", f"Bearer {KEY}") in details.invocation_metadata or "Health" in details.method:
            return continuation(details)

        def refuse(_request: Any, context: Any) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no key")

        return grpc.stream_stream_rpc_method_handler(refuse)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the files of a client."""
    folder = tmp_path_factory.mktemp("access")
    (folder / "key").write_text(f"{KEY}\n")
    return folder


@pytest.fixture(scope="module", autouse=True)
def address(folder: Path) -> Iterator[str]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.crt")
    own, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("client.test")
    client.private_key_pem.write_to_path(folder / "tls.key")
    client.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    pair = own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes()
    server = grpc.server(ThreadPoolExecutor(8), interceptors=[AskForKey()])
    add_InferenceServiceServicer_to_server(FakeInferenceService(), server)
    add_ControlServiceServicer_to_server(FakeControlService(), server)
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    credentials = grpc.ssl_server_credentials([pair], authority.cert_pem.bytes(), require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.fixture
def credentials(folder: Path) -> grpc.ChannelCredentials:
    return tls_credentials(folder / "ca.crt", folder / "tls.crt", folder / "tls.key")


def test_client(address: str, credentials: grpc.ChannelCredentials, folder: Path) -> None:
    """A client with a certificate and a key makes every call; without the key, or the certificate, it is told so."""
    with Client(address, credentials=credentials, api_key=KEY) as client:
        assert client.generate("a b").outputs[0].text == "a b "
        assert "".join(delta.text for delta in client.stream("a b")) == "a b "
        assert len(client.tokenize("a b")) == 2
        assert client.detokenize([1]) == "x"
    with Client(address, credentials=credentials) as client, pytest.raises(UnauthenticatedError):
        client.generate("a")
    with (
        Client(address, credentials=tls_credentials(folder / "ca.crt"), api_key=KEY) as client,
        pytest.raises(UnavailableError),
    ):
        client.generate("a")
    with AdminClient(address, credentials=credentials, api_key=KEY) as admin:
        admin.load_lora("a", "/a")
        assert admin.list_loras() == {"a": "/a"}
        admin.unload_lora("a")
        assert admin.server_info().model == "words"
        assert next(admin.watch_load()).num_running == 2


def test_what_keeps_a_connection_from_being_made(address: str, folder: Path) -> None:
    """It is told in words of what was set: TLS or none, a certificate, a name, a socket."""
    other, plaintext = f"localhost:{address.rpartition(':')[2]}", grpc.server(ThreadPoolExecutor(1))
    plain = f"127.0.0.1:{plaintext.add_insecure_port('127.0.0.1:0')}"
    plaintext.start()
    trusting, strange = tls_credentials(folder / "ca.crt"), tls_credentials(None)
    for where, credentials, words in (
        (address, None, "the server hung up; does it ask for TLS, or for a client's certificate?"),
        (address, trusting, "the server hung up; does it ask for TLS, or for a client's certificate?"),
        (address, strange, "the server's certificate is of an authority that is not known here; name it"),
        (other, trusting, "the server's certificate is not for this name"),
        (plain, trusting, "the server does not use TLS there"),
        (f"unix:{folder}/socket", None, "there is no such socket; is the server running?"),
    ):
        client = Client(where, credentials=credentials, retry=Retry(max_attempts=1))
        with client, pytest.raises(UnavailableError) as raised:
            client.generate("a")
        assert str(raised.value) == f"no connection to {where}: {words}"
    plaintext.stop(None).wait()


def test_a_certificate_that_has_expired_is_told(tmp_path: Path) -> None:
    """And not taken for one of a strange authority."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    begin, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)
    own = authority.issue_cert("127.0.0.1", not_before=begin, not_after=end)
    server = grpc.server(ThreadPoolExecutor(1))
    pair = own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes()
    where = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', grpc.ssl_server_credentials([pair]))}"
    server.start()
    client = Client(where, credentials=tls_credentials(tmp_path / "ca.crt"), retry=Retry(max_attempts=1))
    with (
        client,
        pytest.raises(UnavailableError, match=f"no connection to {where}: the server's certificate has expired"),
    ):
        client.generate("a")
    server.stop(None).wait()


async def test_async_client(address: str, credentials: grpc.ChannelCredentials) -> None:
    """The same for asyncio."""
    async with AsyncClient(address, credentials=credentials, api_key=KEY) as client:
        assert (await client.generate("a b")).outputs[0].text == "a b "
        assert "".join([delta.text async for delta in client.stream("a b")]) == "a b "
        assert len(await client.tokenize("a b")) == 2
        assert await client.detokenize([1]) == "x"
    async with AsyncClient(address, credentials=credentials) as client:
        with pytest.raises(UnauthenticatedError):
            await client.generate("a")
    async with AsyncAdminClient(address, credentials=credentials, api_key=KEY) as admin:
        await admin.load_lora("b", "/b")
        assert await admin.list_loras() == {"b": "/b"}
        await admin.unload_lora("b")
        assert (await admin.server_info()).model == "words"
        async for load in admin.watch_load():
            assert load.num_running == 2
            break


@pytest.mark.parametrize(
    ("command", "where", "variable"),
    [
        (("generate", "a b"), "--address", "SLUICEGATE_API_KEY"),
        (("lora", "list"), "--admin-address", "SLUICEGATE_ADMIN_KEY"),
        (("top", "--count", "1"), "--admin-address", "SLUICEGATE_ADMIN_KEY"),
    ],
)
def test_commands(address: str, folder: Path, command: tuple[str, ...], where: str, variable: str) -> None:
    """Commands take files, and the key also from the environment."""
    name, *arguments = command
    tls = [f"--tls-ca={folder}/ca.crt", f"--tls-cert={folder}/tls.crt", f"--tls-key={folder}/tls.key"]
    for key, environment in (([f"--key-file={folder}/key"], {}), ([], {variable: KEY})):
        done = subprocess.run(
            [SLUICEGATE, name, where, address, *tls, *key, *arguments],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert done.returncode == 0, done.stderr
    done = subprocess.run([SLUICEGATE, name, where, address, *tls, *arguments], capture_output=True, text=True)
    assert done.returncode == 1
    assert "no key" in done.stderr


def test_options(folder: Path) -> None:
    """Half of a pair, a file that is not there, or a key that is none, is refused by name; nothing shows a key."""
    received: list[Access] = []

    @click.command()
    @access_options("SLUICEGATE_API_KEY")
    def command(access: Access) -> None:
        received.append(access)

    for arguments, message in {
        ("--tls-cert", f"{folder}/key"): "--tls-cert and --tls-key belong together",
        ("--tls-ca", f"{folder}/none"): f"{folder}/none' does not exist",
        ("--key-file", str(folder)): "is a directory",
    }.items():
        result = CliRunner().invoke(command, arguments)
        assert result.exit_code == 2
        assert message in result.output
    (folder / "two").write_text("a\nb\n")
    assert "one line of printable ASCII" in CliRunner().invoke(command, ["--key-file", f"{folder}/two"]).output
    odd = CliRunner().invoke(command, env={"SLUICEGATE_API_KEY": "a\nb"})
    assert odd.output == "Error: SLUICEGATE_API_KEY must hold a key: one line of printable ASCII\n"
    assert CliRunner().invoke(command, ["--key-file", f"{folder}/key"]).exit_code == 0
    assert (received[0].api_key, received[0].credentials) == (KEY, None)
    assert KEY not in repr(received[0])
