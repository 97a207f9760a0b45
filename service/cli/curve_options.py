"""CURVE at the gateway: the options of cores on other machines that bring keys."""

from collections.abc import Callable
from pathlib import Path

import click

from service.config import CurveFiles

_OPTIONS = [
    click.option(
        "--curve-key",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The gateway's pair of CURVE keys (.key_secret): all that it and the cores say over tcp is encrypted.",
    ),
    click.option(
        "--curve-core-keys",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Public keys (.key) of the cores that are let in: a folder, or one file.",
    ),
]


def curve_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command."""
    for add_option in reversed(_OPTIONS):
        command = add_option(command)
    return command


def curve_files(key: Path | None, core_keys: Path | None) -> CurveFiles | None:
    """None: in the clear. Raises ValueError for half of what it takes."""
    if key is not None and core_keys is not None:
        return CurveFiles(key, core_keys)
    if key is None and core_keys is None:
        return None
    raise ValueError("CURVE needs both curve_key and curve_core_keys")
