"""An interactive chat on the terminal."""

import sys
from typing import Any

import click

from sluicegate_client.client import Client
from sluicegate_client.errors import SluicegateError
from sluicegate_client.requests import ChatMessage
from sluicegate_client.terminal import line_of, print_figures, print_stream

RESET = "/reset"


class Conversation:
    """Sends every turn with all those before it. Where stdin is no terminal, the first error ends it."""

    def __init__(self, client: Client, system: str | None, options: dict[str, Any]) -> None:
        self._client = client
        self._options = options
        self._opening: list[ChatMessage] = [] if system is None else [_turn("system", system)]
        self._turns = [*self._opening]
        self._interactive = sys.stdin.isatty()

    def run(self) -> None:
        """Returns at the end of the input. Raises SluicegateError where stdin is no terminal."""
        if self._interactive:
            import readline  # noqa: F401  (its import gives input() line editing)

            click.secho(f"Ctrl-C stops an answer, Ctrl-D leaves, {RESET} forgets the conversation.", dim=True)
        while (line := self._read_line()) is not None:
            if line == RESET:
                self._turns = [*self._opening]
            elif line:
                self._take_turn(line)

    def _read_line(self) -> str | None:
        while True:
            try:
                line = input("> ").strip()
            except EOFError:
                click.echo()
                return None
            except KeyboardInterrupt:
                click.secho("\nCtrl-D leaves.", dim=True)
                continue
            if not self._interactive:
                click.echo(line)
            return line

    def _take_turn(self, line: str) -> None:
        try:
            self._answer(line)
        except SluicegateError as error:
            if not self._interactive:
                raise
            click.secho(f"Error: {line_of(error)}", err=True, fg="red")

    def _answer(self, line: str) -> None:
        turns = [*self._turns, _turn("user", line)]
        with self._client.stream(chat=turns, **self._options) as stream:
            answer = print_stream(stream)
        if stream.usage is not None:
            print_figures(stream.usage, answer.speed)
        self._turns = [*turns, _turn("assistant", answer.text)]


def _turn(role: str, content: str) -> ChatMessage:
    return {"role": role, "content": content}
