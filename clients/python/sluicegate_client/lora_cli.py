"""The command `sluicegate lora`."""

import functools
from collections.abc import Callable
from pathlib import Path

import click

from sluicegate_client.access import ADMIN_KEY_VARIABLE, Access, access_options
from sluicegate_client.address import admin_address_option
from sluicegate_client.admin import AdminClient
from sluicegate_client.cli import exit_codes

Connect = Callable[[], AdminClient]


@click.group()
@admin_address_option
@access_options(ADMIN_KEY_VARIABLE)
@click.pass_context
def lora(context: click.Context, admin_address: str, access: Access) -> None:
    """Load and unload the LoRA adapters of a running server."""
    context.obj = functools.partial(AdminClient, admin_address, **vars(access))


@lora.command(short_help="Let requests name an adapter.")
@click.argument("name")
@click.argument("path", type=click.Path(path_type=Path))
@click.pass_obj
def load(connect: Connect, name: str, path: Path) -> None:
    """Let requests name the adapter in PATH, a folder on the machine of the server's cores, as NAME."""
    with exit_codes(), connect() as client:
        client.load_lora(name, str(path.absolute()))


@lora.command(short_help="Take an adapter from new requests.")
@click.argument("name")
@click.pass_obj
def unload(connect: Connect, name: str) -> None:
    """Take NAME from new requests, and return when the last one that runs with it has ended."""
    with exit_codes(), connect() as client:
        client.unload_lora(name)


@lora.command(name="list", short_help="Print the adapters that are loaded.")
@click.pass_obj
def list_loaded(connect: Connect) -> None:
    """Print the adapters that are loaded: name and folder, a tab between them."""
    with exit_codes(), connect() as client:
        for name, path in client.list_loras().items():
            click.echo(f"{name}\t{path}")
