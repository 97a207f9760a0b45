"""Addresses of different policies side by side."""

import os
import stat
from pathlib import Path

import grpc
import pytest
import trustme

from service.config import ListenConfig, SecurityConfig
from service.listener import ListenError
from tests.service.errors_of_calls import error_of
from tests.service.security.certificate_files import channel_credentials, write_pair
from tests.service.security.conftest import Serve, authority, serve
from tests.service.security.whoami import bearer, whoami

__all__ = ["authority", "serve"]

KEY = "a-key-0123456789"


@pytest.fixture
def security(authority: trustme.CA, tmp_path: Path) -> SecurityConfig:
    keys = tmp_path / "keys"
    keys.write_text(f"alice:{KEY}\n")
    return SecurityConfig(write_pair(authority, tmp_path), keys, keys)


async def test_plaintext_beside_tls(
    serve: Serve, authority: trustme.CA, security: SecurityConfig, short_folder: Path
) -> None:
    """TLS and a key are asked for at one address; neighbours come in without both, by a port and a unix socket."""
    sidecar = f"unix:{short_folder}/s"
    listen = ListenConfig(("127.0.0.1:0",), "127.0.0.1:0", plaintext_addresses=("127.0.0.1:0", sidecar))
    async with serve(listen, security) as served:
        guarded, *plaintext = served.grpc_addresses
        async with grpc.aio.secure_channel(guarded, channel_credentials(authority)) as channel:
            assert await whoami(channel, bearer(KEY)) == "alice"
            assert (await error_of(whoami(channel))).code is grpc.StatusCode.UNAUTHENTICATED
        assert plaintext[1:] == [sidecar]
        for address in plaintext:
            async with grpc.aio.insecure_channel(address) as channel:
                assert await whoami(channel) == ""
    assert os.listdir(short_folder) == []


async def test_tls_of_the_admin_address(serve: Serve, authority: trustme.CA, security: SecurityConfig) -> None:
    """Where only this machine reaches it, it is plaintext, with its keys; everywhere else it has the server's TLS."""
    async with (
        serve(ListenConfig(("127.0.0.1:0",), "localhost:0"), security) as served,
        grpc.aio.insecure_channel(served.admin_address) as channel,
    ):
        assert await whoami(channel, bearer(KEY)) == "alice"
    async with serve(ListenConfig(("127.0.0.1:0",), "0.0.0.0:0"), security) as served:
        address = served.admin_address.replace("0.0.0.0", "127.0.0.1")
        async with grpc.aio.secure_channel(address, channel_credentials(authority)) as channel:
            assert await whoami(channel, bearer(KEY)) == "alice"


@pytest.mark.parametrize("mode", [0o600, 0o660])
async def test_permissions_of_socket_files(serve: Serve, short_folder: Path, mode: int) -> None:
    """A unix socket has the permissions it is told, and this process makes other files as before."""
    before = os.umask(0o022)
    try:
        listen = ListenConfig((f"unix:{short_folder}/s",), f"unix:{short_folder}/a", socket_mode=mode)
        async with serve(listen, SecurityConfig()):
            assert [stat.S_IMODE((short_folder / name).stat().st_mode) for name in "sa"] == [mode, mode]
            (short_folder / "other").touch()
            assert stat.S_IMODE((short_folder / "other").stat().st_mode) == 0o644
    finally:
        os.umask(before)


async def test_an_address_that_is_taken(serve: Serve, short_folder: Path) -> None:
    """Addresses of all policies exclude each other: the second one is refused by name, and no socket is left."""
    address = f"unix:{short_folder}/s"
    with pytest.raises(ListenError, match=address):
        async with serve(ListenConfig((address,), "127.0.0.1:0", plaintext_addresses=(address,)), SecurityConfig()):
            pass
    assert os.listdir(short_folder) == []
