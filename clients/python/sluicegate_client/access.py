"""The options of commands that call a server which is not open: TLS, and a key."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import grpc

from sluicegate_client.channel import tls_credentials

_Command = TypeVar("_Command", bound=Callable[..., Any])

API_KEY_VARIABLE = "SLUICEGATE_API_KEY"
ADMIN_KEY_VARIABLE = "SLUICEGATE_ADMIN_KEY"


@dataclass(frozen=True)
class Access:
    """As the clients take them. ``credentials`` None: plaintext."""

    credentials: grpc.ChannelCredentials | None = None
    api_key: str | None = field(default=None, repr=False)


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS = [
    click.option("--tls", is_flag=True, envvar="SLUICEGATE_TLS", help="Connect with TLS."),
    click.option(
        "--tls-ca",
        type=_FILE,
        envvar="SLUICEGATE_TLS_CA",
        show_envvar=True,
        metavar="FILE",
        help="The server's authorities, in PEM; implies --tls.",
    ),
    click.option("--tls-cert", type=_FILE, metavar="FILE", help="A certificate of one's own, in PEM; implies --tls."),
    click.option("--tls-key", type=_FILE, metavar="FILE", help="Its private key, in PEM."),
]


def access_options(key_variable: str) -> Callable[[_Command], _Command]:
    """Options for a command, which gets them as ``access``.

    A key is read from a file or the environment: every user of a machine sees the command lines of all.
    """
    key_option = click.option(
        "--key-file", type=_FILE, metavar="FILE", help=f"File with the key to show. Default: what {key_variable} holds."
    )

    def add_to(command: _Command) -> _Command:
        @functools.wraps(command)
        def with_access(
            tls: bool,
            tls_ca: Path | None,
            tls_cert: Path | None,
            tls_key: Path | None,
            key_file: Path | None,
            **others: Any,
        ) -> Any:
            if (tls_cert is None) != (tls_key is None):
                raise click.UsageError("--tls-cert and --tls-key belong together")
            try:
                has_tls = tls or tls_ca is not None or tls_cert is not None
                credentials = tls_credentials(tls_ca, tls_cert, tls_key) if has_tls else None
                api_key = _key(key_file, key_variable)
            except (OSError, UnicodeDecodeError) as error:
                raise click.ClickException(str(error)) from error
            return command(access=Access(credentials, api_key), **others)

        for option in reversed([*_OPTIONS, key_option]):
            with_access = option(with_access)
        return cast(_Command, with_access)

    return add_to


def _key(file: Path | None, variable: str) -> str | None:
    key = os.environ.get(variable) or None if file is None else file.read_text().strip()
    if key is not None and not (key.isprintable() and key.isascii()):
        raise click.ClickException(f"{file or variable} must hold a key: one line of printable ASCII")
    return key
