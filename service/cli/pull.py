"""`sluicegate pull`: a model into the cache."""

import click

from service.cli.model_argument import resolve_or_fail


@click.command(short_help="Fetch a model into the cache.")
@click.argument("name")
def pull(name: str) -> None:
    """Fetch the model NAME into the cache and print where it is.

    NAME is smollm2-135m, gemma3-270m, all-minilm-l6-v2, which makes vectors of texts, or the id of a model on the
    Hugging Face hub.
    """
    click.echo(resolve_or_fail(name).tokenizer_folder)
