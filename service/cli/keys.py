"""`sluicegate keys`: CURVE keys for gateways and cores on different machines."""

from pathlib import Path

import click

from core.wire.curve import CurveError, write_pair


@click.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where to write. Default: here.",
)
def keys(names: tuple[str, ...], folder: Path) -> None:
    """Make a pair of CURVE keys for each of NAMES.

    NAME.key_secret goes to its owner and to nobody else, NAME.key to those that it talks to: those of cores into the
    gateway's --curve-core-keys, that of the gateway to every core.
    """
    for name in names:
        if Path(name).name != name:
            raise click.UsageError(f"a name must be one of a file, got {name!r}")
        try:
            public, secret = write_pair(folder, name)
        except CurveError as error:
            raise click.ClickException(str(error)) from error
        click.echo(f"{public} {secret}")
