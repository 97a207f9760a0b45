"""The commands `sluicegate generate` and `sluicegate chat`."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import click

from sluicegate_client.access import API_KEY_VARIABLE, Access, access_options
from sluicegate_client.address import address_option
from sluicegate_client.client import Client
from sluicegate_client.conversation import Conversation
from sluicegate_client.errors import SluicegateError
from sluicegate_client.responses import FinishReason
from sluicegate_client.retry import Retry
from sluicegate_client.terminal import line_of, print_figures, print_stream

INTERRUPTED = 130
"""Exit code after Ctrl-C, as of a shell."""

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = [
    address_option,
    click.option(
        "--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Give up after this time."
    ),
    click.option("--lora-name", metavar="NAME", help="LoRA adapter to run with."),
    click.option("--priority", type=int, help="Lower runs first, at a server with --scheduling-policy priority."),
    click.option("--system", metavar="TEXT", help="System message of the chat."),
    click.option("--max-tokens", type=int, default=512, show_default=True, help="Most tokens to generate."),
    click.option(
        "--temperature",
        type=float,
        help="0 takes the likeliest token; higher is more random, up to 2. Default: the model's.",
    ),
    click.option("--top-p", type=float, help="Draw among the likeliest tokens that reach this probability together."),
    click.option("--top-k", type=int, help="Draw among so many of the likeliest tokens; 0: all."),
    click.option("--min-p", type=float, help="Draw among tokens of at least this part of the best one's probability."),
    click.option("--seed", type=int, help="Makes the answer repeatable."),
    click.option("--presence-penalty", type=float, help="Against tokens that the answer has; -2 to 2."),
    click.option("--frequency-penalty", type=float, help="The same, for each time that it has them."),
    click.option("--repetition-penalty", type=float, help="Above 1: against tokens of prompt and answer."),
    click.option("--stop", multiple=True, metavar="TEXT", help="End where this appears; may be repeated."),
    click.option("--ignore-eos", is_flag=True, default=None, help="Go on after the end-of-sequence token."),
]


_FORM_OPTIONS = [
    click.option("--json-schema", type=click.File(), metavar="FILE", help="Answer in JSON that satisfies this schema."),
    click.option("--regex", metavar="PATTERN", help="Answer with what this regular expression matches."),
    click.option("--choice", multiple=True, metavar="TEXT", help="Answer with one of these; may be repeated."),
    click.option("--grammar", type=click.File(), metavar="FILE", help="Answer with a sentence of this EBNF grammar."),
    click.option("--json-object", is_flag=True, help="Answer with any JSON object."),
    click.option("--structural-tag", type=click.File(), metavar="FILE", help="Answer as this structural tag says."),
]


def _tell(error: SluicegateError, wait_s: float) -> None:
    """That nobody is there is told at once: whoever sits there can start the server."""
    if not error.reason:
        raise error
    click.secho(f"{error}; trying again in {wait_s:.1f} s", err=True, dim=True)


_RETRY = Retry(on_wait=_tell)


def _form_options(command: _Command) -> _Command:
    """Add the options of structured output to a command, which gets the one that was given as ``form``."""

    @functools.wraps(command)
    def with_form(**options: Any) -> Any:
        names = ("json_schema", "regex", "choice", "grammar", "json_object", "structural_tag")
        given = {name: value for name in names if (value := options.pop(name))}
        if len(given) > 1:
            flags = " and ".join("--" + name.replace("_", "-") for name in given)
            raise click.UsageError(f"{flags} exclude each other")
        form = {name: value.read() if hasattr(value, "read") else value for name, value in given.items()}
        return command(form=form, **options)

    for option in reversed(_FORM_OPTIONS):
        with_form = option(with_form)
    return cast(_Command, with_form)


def _request_options(command: _Command) -> _Command:
    command = access_options(API_KEY_VARIABLE)(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("prompt")
@_form_options
@click.option("--chat", is_flag=True, help="Send the prompt as a chat message; implied by --system.")
@_request_options
def generate(
    prompt: str, chat: bool, system: str | None, address: str, access: Access, form: dict[str, Any], **options: Any
) -> None:
    """Continue PROMPT (- reads it from standard input), streaming to the terminal.

    The text goes to standard output; usage, time to first token (TTFT) and tokens/s after it to standard error. Exit
    code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
    """
    options |= form
    text = sys.stdin.read() if prompt == "-" else prompt
    if chat or system is not None:
        turns = [("system", system), ("user", text)]
        options["chat"] = [{"role": role, "content": content} for role, content in turns if content is not None]
    with exit_codes(), Client(address, retry=_RETRY, **vars(access)) as client:
        _generate(client, None if "chat" in options else text, options)


def _generate(client: Client, text: str | None, options: dict[str, Any]) -> None:
    with client.stream(text, **options) as stream:
        answer = print_stream(stream)
    if answer.interrupted:
        sys.exit(INTERRUPTED)
    if stream.usage is not None:
        print_figures(stream.usage, answer.speed)
    if (end := stream.finished.get(0)) is None:
        raise click.ClickException("the server ended the stream before the answer")
    if (reason := end.finish_reason) is FinishReason.LENGTH:
        click.secho("Cut off by --max-tokens, or at the end of the model's context.", err=True, dim=True)
    if reason in (FinishReason.ABORT, FinishReason.ERROR):
        raise click.ClickException(f"the server ended the request early: {reason}")


@click.command()
@_request_options
def chat(system: str | None, address: str, access: Access, **options: Any) -> None:
    """Talk to the model. Ctrl-C stops an answer, Ctrl-D leaves, /reset forgets the conversation."""
    with exit_codes(), Client(address, retry=_RETRY, **vars(access)) as client:
        Conversation(client, system, options).run()


@contextmanager
def exit_codes() -> Iterator[None]:
    """1 for a call that failed, 2 for wrong usage, each with one line; 130 for Ctrl-C, with none."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except SluicegateError as error:
        raise click.ClickException(line_of(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
