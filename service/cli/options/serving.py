"""What is served, and under which names."""

from dataclasses import dataclass
from pathlib import Path

import click

from service.cli.option_group import OptionGroup


class LoraModule(click.ParamType[tuple[str, str]]):
    """``NAME=PATH``; a path from here on."""

    name = "name=path"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, equals, path = str(value).partition("=")
        if not (name and equals and path):
            self.fail(f"{value!r} is not NAME=PATH", param, ctx)
        return name, str(Path(path).absolute())


@dataclass(frozen=True)
class Serving:
    """None: as the model has it."""

    served_model_name: str | None
    max_model_len: int | None
    lora_modules: tuple[tuple[str, str], ...]


_OPTIONS = [
    click.option("--served-model-name", metavar="NAME", help="The model's name for clients. Default: the MODEL's own."),
    click.option(
        "--max-model-len",
        type=click.IntRange(min=2),
        help="Longest prompt plus output. Default: the model's own limit.",
    ),
    click.option(
        "--lora-modules",
        multiple=True,
        type=LoraModule(),
        metavar="NAME=PATH",
        help="Adapter to load at the start, for cores with --enable-lora: PATH is a PEFT folder. Repeatable.",
    ),
]

SERVING = OptionGroup("serving", "Model", _OPTIONS, Serving)
