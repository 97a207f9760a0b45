"""Options that belong together: one section of a command's help, one piece of its settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

_Decorator = Callable[[Callable[..., None]], Callable[..., None]]


@dataclass(frozen=True)
class OptionGroup:
    """``read`` makes the piece of settings called ``name`` of the values of ``options``; it may raise ValueError."""

    name: str
    title: str
    options: Sequence[_Decorator]
    read: Callable[..., Any]

    @property
    def parameters(self) -> list[str]:
        """Their names, as ``read`` gets them."""
        return [str(parameter.name) for parameter in click.command()(self.added_to(lambda: None)).params]

    def added_to(self, command: Callable[..., None]) -> Callable[..., None]:
        """``command`` with the options, in their order."""
        for add_option in reversed(self.options):
            command = add_option(command)
        return command

    def take(self, values: dict[str, Any]) -> Any:
        """The piece of settings, of its own ``values``, which are taken out."""
        return self.read(**{name: values.pop(name) for name in self.parameters})


class SectionedCommand(click.Command):
    """Its help shows the options in sections, by title; those of no section come last, as they are.

    Arguments, which have no help of their own, are in the usage line.
    """

    sections: Mapping[str, Sequence[str]] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        records = {str(parameter.name): parameter.get_help_record(ctx) for parameter in self.get_params(ctx)}
        for title, names in self.sections.items():
            rows = [record for name in names if (record := records.pop(name, None)) is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        others = [record for record in records.values() if record is not None and record[1]]
        if others:
            with formatter.section("Options"):
                formatter.write_dl(others)
