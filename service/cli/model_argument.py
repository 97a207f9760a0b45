"""The argument MODEL, and how it becomes files."""

import click

from service.cli.model_progress import model_progress
from service.models import ModelError, ModelFiles, resolve_model

_DEFAULT_MODEL = "smollm2-135m"

model_argument = click.argument("model", default=_DEFAULT_MODEL, envvar="SLUICEGATE_MODEL", metavar="[MODEL]")


def resolve_or_fail(model: str, needs_weights: bool = True) -> ModelFiles:
    """As ``resolve_model``, for people: shows what is fetched, and ends the command with a message if it cannot be."""
    try:
        with model_progress() as report:
            return resolve_model(model, report, needs_weights)
    except ModelError as error:
        raise click.ClickException(str(error)) from error
