"""`sluicegate core`: the core alone."""

import os
import sys

import click

from service.cli.model_argument import resolve_or_fail


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    short_help="Run an engine core alone; it connects to a gateway.",
)
@click.argument("model", default="--help")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def core(model: str, flags: tuple[str, ...]) -> None:
    """Become `python -m core` with MODEL resolved to its files; every flag is the core's own."""
    path = model if model in ("-h", "--help") else str(resolve_or_fail(model).path)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "core", path, *flags])
