"""The address of a server, as an option of a command."""

import click

from sluicegate_client.channel import DEFAULT_ADDRESS


class Address(click.ParamType[str]):
    """``HOST:PORT`` or ``unix:/path``; gRPC would take a host without a port for one that listens on 443."""

    name = "address"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        host, _, port = value.rpartition(":")
        if not value.startswith("unix:") and not (host and "://" not in value and port.isdecimal()):
            self.fail(f"must be HOST:PORT or unix:/path, got {value!r}", param, ctx)
        return value


address_option = click.option(
    "--address",
    type=Address(),
    default=DEFAULT_ADDRESS,
    show_default=True,
    envvar="SLUICEGATE_ADDRESS",
    show_envvar=True,
    help="Where the server is: HOST:PORT or unix:/path.",
)
"""Of the address that clients call."""
