"""What protects the addresses: certificates, and keys of callers."""

from dataclasses import dataclass
from pathlib import Path

from core.wire.curve import CurveServer, read_pair


@dataclass(frozen=True)
class TlsConfig:
    """Files in PEM. ``cert`` holds the server's certificate first, then those that lead from it to its authority."""

    cert: Path
    key: Path
    client_ca: Path | None = None
    """The authorities of clients: whoever has no certificate of theirs is not let in. None: nobody is asked for one."""


@dataclass(frozen=True)
class CurveFiles:
    """What protects the wire to cores of other machines. See ``core.wire.curve``."""

    key: Path
    """The gateway's pair."""
    core_keys: Path
    """Public keys of the cores that are let in: a folder of them, or one file."""

    def server(self) -> CurveServer:
        """Raises CurveError."""
        server = CurveServer(read_pair(self.key), self.core_keys)
        server.check_clients()
        return server

    @property
    def flags(self) -> tuple[str, ...]:
        """For the coordinator."""
        return "--curve-key", str(self.key), "--curve-core-keys", str(self.core_keys)


@dataclass(frozen=True)
class SecurityConfig:
    """Nothing by default. See docs/security.md for the forms of the files."""

    tls: TlsConfig | None = None
    api_key_file: Path | None = None
    """Keys of those who call the public addresses."""
    admin_key_file: Path | None = None
    """Keys of operators. They are not those of clients: who may generate may not therefore drain the server."""
    allow_open_admin: bool = False
    """Whether the admin address may be reached from other machines without TLS or without keys."""
