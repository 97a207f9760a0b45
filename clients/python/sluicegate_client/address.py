"""The address of a server, as an option of a command."""

import click


class Address(click.ParamType[str]):
    """``HOST:PORT`` or ``unix:/path``; gRPC would take a host without a port for one that listens on 443."""

    name = "address"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        host, _, port = value.rpartition(":")
        if not value.startswith("unix:") and not (host and "://" not in value and port.isdecimal()):
            self.fail(f"must be HOST:PORT or unix:/path, got {value!r}", param, ctx)
        return value
