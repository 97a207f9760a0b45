"""The argument MODEL, and how it becomes files."""

import click

from service.cli.model_progress import model_progress
from service.models import ModelError, ModelFiles, resolve_model

_DEFAULT_MODEL = "smollm2-135m"

model_argument = click.argument("model", default=_DEFAULT_MODEL, envvar="SLUICEGATE_MODEL", metavar="[MODEL]")


def resolve_or_fail(model: str) -> ModelFiles:
    """The files of ``model``, fetched if need be. Ends the command with a message if they cannot be had."""
    try:
        with model_progress() as report:
            return resolve_model(model, report)
    except ModelError as error:
        raise click.ClickException(str(error)) from error
