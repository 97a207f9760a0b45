"""A stream on the terminal: its text as it comes, its figures at the end, or what ended it."""

import time
from dataclasses import dataclass

import click

from sluicegate_client.client import Stream
from sluicegate_client.responses import Usage


@dataclass(frozen=True, slots=True)
class Speed:
    """What the reader of a stream felt, by the monotonic clock."""

    ttft_s: float
    """From the request to the first token."""
    duration_s: float
    """From the request to the end."""

    def output_tokens_per_s(self, num_output_tokens: int) -> float:
        """The rate after the first token; 0 when there was no second."""
        decode_s = self.duration_s - self.ttft_s
        return (num_output_tokens - 1) / decode_s if num_output_tokens > 1 and decode_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What was printed; all of it, unless Ctrl-C ``interrupted`` the stream."""

    text: str
    speed: Speed
    interrupted: bool


def print_stream(stream: Stream) -> Answer:
    """Prints the text as it comes; Ctrl-C cancels the stream. It must be one of a single sequence, just begun."""
    start = time.monotonic()
    first: float | None = None
    text = []
    interrupted = False
    try:
        for delta in stream:
            first = first or time.monotonic()
            text.append(delta.text)
            click.echo(delta.text, nl=False)
    except KeyboardInterrupt:
        interrupted = True
        stream.cancel()
    click.echo()
    end = time.monotonic()
    return Answer("".join(text), Speed((first or end) - start, end - start), interrupted)


def print_figures(usage: Usage, speed: Speed, err: bool = True) -> None:
    """One line; on stderr by default, so that stdout holds the text alone."""
    cached = f" ({usage.num_cached_tokens} cached)" if usage.num_cached_tokens else ""
    click.secho(
        f"{usage.num_prompt_tokens} prompt tokens{cached}, {usage.num_output_tokens} output tokens, "
        f"TTFT {speed.ttft_s:.2f} s, {speed.output_tokens_per_s(usage.num_output_tokens):.1f} tokens/s",
        err=err,
        dim=True,
    )


def line_of(error: Exception) -> str:
    """Its message, and its notes."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])
