"""The option that names the model of the gateways that are measured: they need its tokenizer, and no weights."""

from pathlib import Path

import click

from service.models.resolve import cache_folder

model_option = click.option(
    "--model",
    type=click.Path(path_type=Path, exists=True),
    default=cache_folder() / "models/smollm2-135m",
    help="Folder of a model, as `sluicegate pull` leaves it.",
)
