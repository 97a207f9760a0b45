"""Certificates and keys."""

from pathlib import Path

import click

from service.cli.option_group import OptionGroup
from service.config import SecurityConfig, TlsConfig

_FILE = click.Path(dir_okay=False, path_type=Path)
_OPTIONS = [
    click.option("--tls-cert", type=_FILE, metavar="FILE", help="The server's certificate and its chain, in PEM: TLS."),
    click.option("--tls-key", type=_FILE, metavar="FILE", help="Its private key, in PEM."),
    click.option(
        "--tls-client-ca",
        type=_FILE,
        metavar="FILE",
        help="Authorities of clients, in PEM: only clients with a certificate of theirs are let in.",
    ),
    click.option(
        "--api-key-file",
        type=_FILE,
        metavar="FILE",
        help="Only callers with a key are let in. Lines NAME:KEY or NAME:sha256:HEX.",
    ),
    click.option(
        "--admin-key-file", type=_FILE, metavar="FILE", help="The same for operators, at the --admin-address."
    ),
    click.option(
        "--allow-open-admin",
        is_flag=True,
        help="Let other machines reach the --admin-address though it has no TLS or no keys.",
    ),
]


def _read(
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    api_key_file: Path | None,
    admin_key_file: Path | None,
    allow_open_admin: bool,
) -> SecurityConfig:
    return SecurityConfig(_tls(tls_cert, tls_key, tls_client_ca), api_key_file, admin_key_file, allow_open_admin)


def _tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> TlsConfig | None:
    if cert is not None and key is not None:
        return TlsConfig(cert, key, client_ca)
    if not (cert or key or client_ca):
        return None
    raise ValueError("TLS needs both tls_cert and tls_key")


SECURITY = OptionGroup("security", "Security", _OPTIONS, _read)
