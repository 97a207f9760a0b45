"""What the gateway takes on."""

import click

from service.cli.option_group import OptionGroup
from service.config import LimitsConfig

_OPTIONS = [
    click.option(
        "--max-queued-requests",
        type=click.IntRange(min=1),
        default=2048,
        help="Most sequences at once, running and waiting together.",
    ),
    click.option(
        "--max-queued-tokens",
        type=click.IntRange(min=1),
        default=16_777_216,
        help="Most tokens in the prompts and token lists of all these sequences together.",
    ),
    click.option(
        "--max-logprobs",
        type=click.IntRange(min=-1),
        default=20,
        help="Most log-probabilities per token that a request may ask for; -1: those of the whole vocabulary.",
    ),
    click.option(
        "--drain-timeout",
        type=click.FloatRange(min=0),
        default=30.0,
        metavar="SECONDS",
        help="How long running requests may go on after SIGTERM.",
    ),
    click.option(
        "--lame-duck",
        type=click.FloatRange(min=0),
        default=0.0,
        metavar="SECONDS",
        help="Before that, say NOT_SERVING for so long and still take requests, for load balancers to notice.",
    ),
    click.option(
        "--write-stall-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=60.0,
        metavar="SECONDS",
        help="A stream whose client does not read for so long is cut.",
    ),
    click.option(
        "--min-flush-interval",
        type=click.FloatRange(min=0),
        default=0.0,
        metavar="SECONDS",
        help="Send a stream's tokens no oftener, for less CPU; its first token and its end come at once.",
    ),
]


def _read(
    max_queued_requests: int,
    max_queued_tokens: int,
    max_logprobs: int,
    drain_timeout: float,
    lame_duck: float,
    write_stall_timeout: float,
    min_flush_interval: float,
) -> LimitsConfig:
    return LimitsConfig(
        max_queued_requests,
        max_queued_tokens,
        drain_timeout,
        write_stall_timeout,
        max_logprobs,
        min_flush_interval,
        lame_duck,
    )


LIMITS = OptionGroup("limits", "Limits", _OPTIONS, _read)
