"""The command-line options of LoRA adapters."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from core.config import LoraConfig
from core.process_options import option

_AT_LEAST_ONE = click.IntRange(min=1)
_OPTIONS = [
    option(
        "--enable-lora/--no-enable-lora",
        default=False,
        help="Whether requests may name LoRA adapters.",
    ),
    option("--max-loras", type=_AT_LEAST_ONE, default=LoraConfig.max_loras, help="Most adapters in one step."),
    option("--max-lora-rank", type=_AT_LEAST_ONE, default=LoraConfig.max_lora_rank, help="Highest rank of an adapter."),
    option("--max-cpu-loras", type=_AT_LEAST_ONE, help="Most adapters in memory. Default: 16, or --max-loras if more."),
    option(
        "--lora-root",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder that adapters must be in, whoever asks for them. Default: any that the core can read.",
    ),
]


def lora_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as one ``lora`` argument; None: without adapters."""

    @functools.wraps(command)
    def with_lora(
        enable_lora: bool,
        max_loras: int,
        max_lora_rank: int,
        max_cpu_loras: int | None,
        lora_root: Path | None,
        **others: Any,
    ) -> Any:
        try:
            lora = LoraConfig(max_loras, max_lora_rank, max_cpu_loras, lora_root) if enable_lora else None
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        return command(lora=lora, **others)

    for add_option in reversed(_OPTIONS):
        with_lora = add_option(with_lora)
    return with_lora
