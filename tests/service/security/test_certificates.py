"""TLS on real ports, with certificates made here."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from service.config import ListenConfig, SecurityConfig, TlsConfig
from service.security.certificates import Certificates
from service.security.watched_files import SecurityFileError
from tests.service.errors_of_calls import error_of
from tests.service.security.certificate_files import channel_credentials, write_authority, write_pair
from tests.service.security.conftest import Serve
from tests.service.security.whoami import whoami

LISTEN = ListenConfig(("127.0.0.1:0",), "127.0.0.1:0")


async def called_over(address: str, credentials: grpc.ChannelCredentials | None) -> str:
    """On a connection of its own. ``credentials`` None: in plaintext."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    opened = (
        grpc.aio.insecure_channel(address, options)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options)
    )
    async with opened as channel:
        return await whoami(channel)


async def test_only_who_trusts_the_server_is_served(serve: Serve, authority: trustme.CA, tmp_path: Path) -> None:
    """With TLS a client that trusts the authority is served; plaintext, or another authority, is not."""
    security = SecurityConfig(write_pair(authority, tmp_path))
    async with serve(LISTEN, security) as served:
        (address,) = served.grpc_addresses
        assert await called_over(address, channel_credentials(authority)) == ""
        for wrong in (None, channel_credentials(trustme.CA())):
            assert (await error_of(called_over(address, wrong))).code is grpc.StatusCode.UNAVAILABLE


async def test_clients_need_a_certificate(serve: Serve, authority: trustme.CA, tmp_path: Path) -> None:
    """With an authority of clients, a client without a certificate of it is refused in the handshake."""
    clients = trustme.CA()
    tls = replace(write_pair(authority, tmp_path), client_ca=write_authority(clients, tmp_path))
    async with serve(LISTEN, SecurityConfig(tls)) as served:
        (address,) = served.grpc_addresses
        assert await called_over(address, channel_credentials(authority, clients)) == ""
        for wrong in (None, trustme.CA()):
            error = await error_of(called_over(address, channel_credentials(authority, wrong)))
            assert error.code is grpc.StatusCode.UNAVAILABLE


def swap_link(link: Path, target: Path) -> None:
    """As Kubernetes renews a secret: one rename."""
    os.symlink(target, f"{link}.new")
    os.rename(f"{link}.new", link)


async def test_renewal_as_kubernetes_does_it(serve: Serve, authority: trustme.CA, tmp_path: Path) -> None:
    """A symbolic link that leads to the next pair: new connections get it, open ones go on, nothing is restarted."""
    old, new = authority, trustme.CA()
    for name, issuer in (("old", old), ("new", new)):
        (tmp_path / name).mkdir()
        write_pair(issuer, tmp_path / name)
    swap_link(tmp_path / "data", tmp_path / "old")
    tls = TlsConfig(tmp_path / "data/tls.crt", tmp_path / "data/tls.key")
    async with serve(LISTEN, SecurityConfig(tls)) as served:
        (address,) = served.grpc_addresses
        async with grpc.aio.secure_channel(address, channel_credentials(old)) as open_channel:
            await whoami(open_channel)
            swap_link(tmp_path / "data", tmp_path / "new")
            assert await called_over(address, channel_credentials(new)) == ""
            assert (await error_of(called_over(address, channel_credentials(old)))).code is grpc.StatusCode.UNAVAILABLE
            assert await whoami(open_channel) == ""


async def test_a_half_written_pair_changes_nothing(
    serve: Serve, authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A cut file, one without its partner, or none: logged by name, once, and the old pair stays until the next."""
    tls = write_pair(authority, tmp_path)
    key = tls.key.read_bytes()
    next_authority = trustme.CA()
    next_pair = next_authority.issue_cert("127.0.0.1")
    async with serve(LISTEN, SecurityConfig(tls)) as served:
        (address,) = served.grpc_addresses

        async def still_served(complaint: str) -> None:
            caplog.clear()
            for _ in range(2):
                assert await called_over(address, channel_credentials(authority)) == ""
            assert caplog.text.count("what was read before stays in force") == 1
            assert complaint in caplog.text

        tls.key.write_bytes(key[: len(key) // 2])
        await still_served(f"{tls.key} holds no private key in PEM")
        tls.key.unlink()
        await still_served(f"cannot read {tls.key}: No such file or directory")
        tls.key.write_bytes(next_pair.private_key_pem.bytes())
        await still_served(f"the key in {tls.key} is not that of the certificate in {tls.cert}")
        tls.cert.write_bytes(next_pair.cert_chain_pems[0].bytes())
        assert await called_over(address, channel_credentials(next_authority)) == ""


def test_files_that_cannot_be(authority: trustme.CA, tmp_path: Path) -> None:
    """At the start each file that is missing, or of another kind, is named with what is wrong with it."""
    tls = write_pair(authority, tmp_path)
    empty, missing = tmp_path / "empty", tmp_path / "missing"
    empty.touch()
    encrypted = tmp_path / "encrypted"
    key = load_pem_private_key(tls.key.read_bytes(), None)
    encrypted.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")))
    other = tmp_path / "other"
    other.write_bytes(trustme.CA().issue_cert("x").private_key_pem.bytes())
    for wrong, message in {
        replace(tls, cert=missing): f"cannot read {missing}: No such file or directory",
        replace(tls, key=tmp_path): f"cannot read {tmp_path}: Is a directory",
        replace(tls, cert=empty): f"{empty} holds no certificate in PEM",
        replace(tls, cert=tls.key): f"{tls.key} holds no certificate in PEM",
        replace(tls, key=tls.cert): f"{tls.cert} holds no private key in PEM",
        replace(tls, key=encrypted): f"the key in {encrypted} is encrypted",
        replace(tls, key=other): f"the key in {other} is not that of the certificate in {tls.cert}",
        replace(tls, client_ca=empty): f"{empty} holds no certificate in PEM",
    }.items():
        with pytest.raises(SecurityFileError, match=f"^{message}"):
            Certificates(wrong)


def test_expiry(authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When the certificate expires is logged and told; one that has expired is a warning."""
    end = datetime(2020, 1, 1, tzinfo=UTC)
    tls = write_pair(authority, tmp_path, not_before=end - timedelta(days=1), not_after=end)
    certificates = Certificates(tls)
    assert certificates.expires_at == end
    assert [(record.levelname, "has expired at 2020-01-01" in record.message) for record in caplog.records] == [
        ("WARNING", True)
    ]
    write_pair(authority, tmp_path)
    assert certificates.expires_at > datetime.now(UTC)
