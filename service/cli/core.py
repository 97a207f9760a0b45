"""`sluicegate core`: the core alone."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from service.cli.configurable import config_option, read_settings, variable_of
from service.cli.engine_options import CORE_KEYS
from service.cli.model_argument import resolve_or_fail

_HELP = ("-h", "--help")


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    params=[config_option(reads_flags=False)],
    short_help="Run an engine core alone; it connects to a gateway.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def core(context: click.Context, config: Path | None, arguments: tuple[str, ...]) -> None:
    """Become `python -m core` with MODEL resolved to its files; every other argument is the core's own.

    What a configuration file says reaches it through the environment, which comes after the command line as it should.
    """
    settings = {} if config is None else read_settings(context, config, CORE_KEYS)
    environment = {variable_of(key): str(value) for key, value in settings.items()} | os.environ
    if any(flag in arguments for flag in _HELP) or not (arguments or variable_of("model") in environment):
        subprocess.run(_core_command("--help"), check=True)
        click.echo("\nAlso --config FILE: YAML with flags as keys; flags and the environment come before it.")
    else:
        os.execve(sys.executable, _core_command(*_with_model_files(arguments, environment)), environment)


def _with_model_files(arguments: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    """MODEL stands first, or else in the environment; that there is none is the core's to say."""
    given = arguments[:1] if arguments and not arguments[0].startswith("-") else ()
    model = given[0] if given else environment.get(variable_of("model"))
    if not model:
        return [*arguments]
    files = resolve_or_fail(model)
    # What is given by hand comes later on the command line, and so counts.
    tokenizer = [] if variable_of("tokenizer") in environment else [f"--tokenizer={files.tokenizer_folder}"]
    return [str(files.path), *tokenizer, *arguments[len(given) :]]


def _core_command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "core", *arguments]
