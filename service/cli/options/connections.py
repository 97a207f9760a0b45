"""What one connection of a client may ask for, and for how long it lives."""

import click

from service.cli.option_group import OptionGroup
from service.config import ConnectionsConfig

_SECONDS = click.FloatRange(min=0)
_SOME_SECONDS = click.FloatRange(min=0, min_open=True)
_OPTIONS = [
    click.option(
        "--max-message-bytes", type=click.IntRange(min=1), default=16 * 2**20, help="Largest message of a client."
    ),
    click.option(
        "--max-metadata-bytes", type=click.IntRange(min=1), default=16 * 2**10, help="Most metadata of a call."
    ),
    click.option(
        "--max-concurrent-streams",
        type=click.IntRange(min=1),
        default=4096,
        help="Most calls at once on a connection; the client keeps the others until one ends.",
    ),
    click.option(
        "--client-handshake-timeout",
        type=_SOME_SECONDS,
        default=20.0,
        metavar="SECONDS",
        help="How long a client may take to begin with TLS and HTTP/2.",
    ),
    click.option(
        "--max-connection-age",
        type=_SECONDS,
        default=0.0,
        metavar="SECONDS",
        help="Then a client has to connect anew, by which it finds servers that were added; 0 = never.",
    ),
    click.option(
        "--max-connection-age-grace",
        type=_SOME_SECONDS,
        default=600.0,
        metavar="SECONDS",
        help="How long calls that run by then may go on.",
    ),
    click.option(
        "--keepalive-interval",
        type=_SECONDS,
        default=30.0,
        metavar="SECONDS",
        help="How long a client may be silent until it is pinged; 0 = never.",
    ),
    click.option(
        "--keepalive-timeout",
        type=_SOME_SECONDS,
        default=20.0,
        metavar="SECONDS",
        help="How long it may take to answer; then it is gone, and its calls are cancelled.",
    ),
]


def _read(
    client_handshake_timeout: float,
    max_connection_age: float,
    max_connection_age_grace: float,
    keepalive_interval: float,
    keepalive_timeout: float,
    **numbers: int,
) -> ConnectionsConfig:
    return ConnectionsConfig(
        client_handshake_timeout_s=client_handshake_timeout,
        max_connection_age_s=max_connection_age,
        max_connection_age_grace_s=max_connection_age_grace,
        keepalive_interval_s=keepalive_interval,
        keepalive_timeout_s=keepalive_timeout,
        **numbers,
    )


CONNECTIONS = OptionGroup("connections", "Connections", _OPTIONS, _read)
