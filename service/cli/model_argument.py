"""The argument MODEL, and how it becomes files."""

import click

from service.cli.model_progress import model_progress
from service.models import CORE_ARCHITECTURES, KNOWN_MODELS, KnownModel, ModelError, ModelFiles, resolve_model

_DEFAULT_MODEL = "smollm2-135m"

model_argument = click.argument("model", default=_DEFAULT_MODEL, envvar="SLUICEGATE_MODEL", metavar="[MODEL]")


def resolve_or_fail(model: str, needs_weights: bool = True) -> ModelFiles:
    """As ``resolve_model``, for people: shows what is fetched, and ends the command with a message if it cannot be."""
    try:
        with model_progress() as report:
            return resolve_model(model, report, needs_weights)
    except ModelError as error:
        raise click.ClickException(str(error)) from error


def resolve_for_core(model: str) -> ModelFiles:
    """As ``resolve_or_fail``, for our own core: what it does not run is not fetched first."""
    if (obstacle := obstacle_to_core(model)) is not None:
        raise click.ClickException(obstacle)
    return resolve_or_fail(model)


def obstacle_to_core(model: str) -> str | None:
    """Why our core cannot run a known model; None if it can, or if ``model`` is none of the known ones."""
    known = KNOWN_MODELS.get(model)
    if not isinstance(known, KnownModel) or known.architecture in CORE_ARCHITECTURES:
        return None
    runs = ", ".join(CORE_ARCHITECTURES)
    return f"{model}: this version's core does not run its architecture ({known.architecture}) yet; it runs {runs}"
