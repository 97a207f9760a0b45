"""The server's certificate and key, renewed without a restart.

gRPC asks before every TLS handshake: a new pair counts from the next connection on, and those that are open go on.
"""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from service.config import TlsConfig
from service.security.watched_files import SecurityFileError, WatchedFiles, read_file

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Pair:
    """One version of the files, checked."""

    key: bytes
    chain: bytes
    client_ca: bytes | None
    subject: str
    expires_at: datetime

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(self.key, self.chain)], self.client_ca)


class Certificates:
    """Read when made, and again whenever a client connects after the files have changed."""

    def __init__(self, config: TlsConfig) -> None:
        """Raises SecurityFileError, which names the file."""
        paths = [path for path in (config.cert, config.key, config.client_ca) if path is not None]
        self._asks_clients = config.client_ca is not None
        self._files = WatchedFiles(paths, lambda: _read(config))

    @property
    def expires_at(self) -> datetime:
        """When the certificate that new connections get ceases to be valid."""
        return self._files.content().expires_at

    def credentials(self) -> grpc.ServerCredentials:
        """For one port."""
        in_force = self._files.content()

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal in_force
            newest = self._files.content()
            if newest is in_force:
                return None
            in_force = newest
            return newest.configuration()

        # None, which the types of gRPC do not know, is for no change.
        return grpc.dynamic_ssl_server_credentials(
            in_force.configuration(),
            fetch,  # type: ignore[arg-type]
            self._asks_clients,
        )


def _read(config: TlsConfig) -> _Pair:
    chain, key = read_file(config.cert), read_file(config.key, is_secret=True)
    client_ca = None if config.client_ca is None else read_file(config.client_ca)
    certificate = _first_certificate(config.cert, chain)
    try:
        belongs = _public_key_of(config.key, key) == certificate.public_key()
        subject = certificate.subject.rfc4514_string()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SecurityFileError(f"the certificate in {config.cert} cannot be used: {error}") from error
    if not belongs:
        raise SecurityFileError(f"the key in {config.key} is not that of the certificate in {config.cert}")
    if config.client_ca is not None and client_ca is not None:
        _first_certificate(config.client_ca, client_ca)
    pair = _Pair(key, chain, client_ca, subject, certificate.not_valid_after_utc)
    _say_until_when(config.cert, pair)
    return pair


def _say_until_when(path: Path, pair: _Pair) -> None:
    is_over = pair.expires_at <= datetime.now(UTC)
    level, verb = (logging.WARNING, "has expired") if is_over else (logging.INFO, "expires")
    logger.log(level, "the certificate in %s (%s) %s at %s", path, pair.subject, verb, pair.expires_at.isoformat())


def _first_certificate(path: Path, content: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificates(content)[0]
    except ValueError as error:
        raise SecurityFileError(f"{path} holds no certificate in PEM: {error}") from error


def _public_key_of(path: Path, content: bytes) -> object:
    try:
        return load_pem_private_key(content, password=None).public_key()
    except TypeError as error:
        raise SecurityFileError(f"the key in {path} is encrypted: give it without a password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SecurityFileError(f"{path} holds no private key in PEM") from error
