"""What protects the addresses: certificates, and keys of callers."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TlsConfig:
    """Files in PEM. ``cert`` holds the server's certificate first, then those that lead from it to its authority."""

    cert: Path
    key: Path
    client_ca: Path | None = None
    """The authorities of clients: whoever has no certificate of theirs is not let in. None: nobody is asked for one."""


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
