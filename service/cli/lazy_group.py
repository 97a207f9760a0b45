"""A click group that imports a command when it is run, not before: `sluicegate pull` has no use for gRPC.

After the pattern "Lazily Loading Subcommands" of click's documentation; the one-line help stands in the table, so that
listing the commands imports none.
"""

import gc
from importlib import import_module
from typing import Any, NamedTuple, cast

import click

from service.cli.configurable import configurable


class LazyCommand(NamedTuple):
    """Where a command is (`module:name`) and its one-line help.

    Unless it ``is_configurable`` it has the names in the environment that it says itself, and no ``--config``.
    """

    path: str
    short_help: str
    is_configurable: bool = True

    def load(self) -> click.Command:
        module, _, name = self.path.partition(":")
        gc.disable()  # All that is imported stays: looking for garbage in it again and again takes a seventh more.
        try:
            loaded = cast(click.Command, getattr(import_module(module), name))
            return configurable(loaded) if self.is_configurable else loaded
        finally:
            gc.enable()


class LazyGroup(click.Group):
    """Lists its commands in the order of the table."""

    def __init__(self, *args: Any, commands_by_name: dict[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._commands_by_name = commands_by_name

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*self._commands_by_name]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        command = self._commands_by_name.get(cmd_name)
        return command.load() if command else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.short_help) for name, command in self._commands_by_name.items()])
