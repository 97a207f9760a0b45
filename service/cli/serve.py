"""`sluicegate serve`: gateway and core."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from service.cli.gateway_options import CONTEXT_SETTINGS, GatewaySettings, gateway_options, option, usage_errors
from service.cli.model_argument import model_argument, resolve_or_fail
from service.config import CoreConfig
from service.server import run

_ENGINE_OPTIONS = [
    option("--max-num-seqs", type=click.IntRange(min=1), help="Most requests in one step."),
    option("--max-num-batched-tokens", type=click.IntRange(min=1), help="Most tokens in one step."),
    option("--block-size", type=click.IntRange(min=1), help="Tokens in one KV block."),
    option("--kv-cache-memory", metavar="BYTES", help="Memory of the KV cache, such as 2GiB."),
    option("--enable-prefix-caching/--no-enable-prefix-caching", default=None, help="Keep the blocks of prompts."),
    option("--dtype", help="Type of the computation."),
    option("--quantization", help="none: computation in --dtype on dequantized weights."),
    option("--device", help="Where the model runs."),
    option("--seed", type=int, help="Mixed into the draws of requests without a seed of their own."),
]
"""Passed on to the core, which has the defaults and the last word on every value."""


def engine_options(command: Any) -> Any:
    """Add the options of the engine."""
    for add_option in reversed(_ENGINE_OPTIONS):
        command = add_option(command)
    return command


@click.command(context_settings=CONTEXT_SETTINGS)
@model_argument
@gateway_options
@engine_options
def serve(model: str, settings: GatewaySettings, **engine_flags: Any) -> None:
    """Serve MODEL: a folder, a .gguf file, a hub id or a name of `sluicegate pull`.

    Starts a gateway and a core. SIGTERM or Ctrl-C drains: running requests finish, then the exit code is 0.
    """
    files = resolve_or_fail(model)
    flags = {"max_model_len": settings.max_model_len, "log_level": settings.log_level, **engine_flags}
    core = CoreConfig(command=core_command(files.path, flags), load_timeout_s=settings.core_load_timeout_s)
    with usage_errors():
        config = settings.config_for(files, core)
    sys.exit(run(config))


def core_command(model_path: Path, flags: dict[str, Any]) -> tuple[str, ...]:
    """The argv of a core; flags that are None are left to it. ``-P``: a folder named core here is not our package."""
    return (sys.executable, "-P", "-m", "core", str(model_path), *_spelled(flags))


def _spelled(flags: dict[str, Any]) -> Iterator[str]:
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        elif value is not None:
            yield f"--{flag}={value}"
