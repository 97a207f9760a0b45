"""Certificates made for a test, in files."""

from pathlib import Path

import grpc
import trustme

from service.config import TlsConfig

HOST = "127.0.0.1"


def write_pair(authority: trustme.CA, folder: Path, **options: object) -> TlsConfig:
    """A server's certificate and key in ``folder``."""
    certificate = authority.issue_cert(HOST, "localhost", **options)  # type: ignore[arg-type]
    files = TlsConfig(folder / "tls.crt", folder / "tls.key")
    files.cert.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    files.key.touch(0o600)
    files.key.write_bytes(certificate.private_key_pem.bytes())
    return files


def write_authority(authority: trustme.CA, folder: Path) -> Path:
    """The authority's own certificate."""
    authority.cert_pem.write_to_path(folder / "ca.crt")
    return folder / "ca.crt"


def channel_credentials(server: trustme.CA, client: trustme.CA | None = None) -> grpc.ChannelCredentials:
    """Of a client that trusts ``server``, with a certificate of ``client``."""
    roots = server.cert_pem.bytes()
    if client is None:
        return grpc.ssl_channel_credentials(roots)
    own = client.issue_cert("client.test", common_name="client")
    return grpc.ssl_channel_credentials(roots, own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes())
