"""The address of a server, as an option of a command."""

import re

import click

from sluicegate_client.channel import DEFAULT_ADDRESS, DEFAULT_ADMIN_ADDRESS

_SCHEMES = re.compile(r"dns:///(?!/)|ipv4:|ipv6:")


class Address(click.ParamType[str]):
    """``HOST:PORT``, ``unix:/path``, or several servers as ``balancing_options`` takes them.

    gRPC would take a host without a port for one that listens on 443.
    """

    name = "address"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.isprintable():  # Bytes that are no text, too.
            self.fail(f"must be text, got {value!r}", param, ctx)
        if not value.startswith("unix:") and not all(map(_has_port, _SCHEMES.sub("", value, 1).split(","))):
            self.fail(f"must be HOST:PORT, unix:/path or dns:///HOST:PORT, got {value!r}", param, ctx)
        return value


def _has_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and "/" not in host and port.isascii() and port.isdecimal() and int(port) < 65536


address_option = click.option(
    "--address",
    type=Address(),
    default=DEFAULT_ADDRESS,
    show_default=True,
    envvar="SLUICEGATE_ADDRESS",
    show_envvar=True,
    help="Where the server is: HOST:PORT, unix:/path, or dns:///HOST:PORT for all that the name stands for.",
)
"""Of the address that clients call."""

admin_address_option = click.option(
    "--admin-address",
    type=Address(),
    default=DEFAULT_ADMIN_ADDRESS,
    show_default=True,
    envvar="SLUICEGATE_ADMIN_ADDRESS",
    show_envvar=True,
    help="Where the server's operators call: HOST:PORT or unix:/path.",
)
"""Of the address that operators call."""
