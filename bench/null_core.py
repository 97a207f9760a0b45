"""A core without a model: ``python -m bench.null_core --handshake-address ipc:///tmp/h --tokens-per-second 50``.

Everything but the engine is the real core: handshake, IO threads, busy loop, shutdown.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from bench.null_engine import NullEngine, NullEngineConfig
from core.process import ProcessConfig, run_engine_core
from core.process_options import CONTEXT_SETTINGS, option, process_options


class TokenIds(click.ParamType[Sequence[int]]):
    """``5,6,7`` or ``100-199``."""

    name = "ids"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Sequence[int]:
        first, dash, last = str(value).partition("-")
        try:
            if dash and int(first) <= int(last):
                return range(int(first), int(last) + 1)
            return [int(token_id) for token_id in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is neither a list such as 5,6,7 nor a range such as 100-199", param, ctx)


@click.command(context_settings=CONTEXT_SETTINGS)
@process_options
@option(
    "--tokens-per-second", type=click.FloatRange(min=0), default=0.0, help="Rate of each stream; 0 = as fast as it can."
)
@option("--max-model-len", type=click.IntRange(min=2), default=8192, help="Longest prompt plus output.")
@option("--vocab-size", type=click.IntRange(min=1), default=1000, help="Say every token below it, in turn.")
@option("--token-ids", type=TokenIds(), help="Say these instead.")
@option("--step-log", type=click.Path(path_type=Path, dir_okay=False), help="Write the time of every step there.")
def main(
    process: ProcessConfig,
    tokens_per_second: float,
    max_model_len: int,
    vocab_size: int,
    token_ids: Sequence[int] | None,
    step_log: Path | None,
) -> None:
    """A core that answers every request with tokens from nowhere."""
    config = NullEngineConfig(token_ids or range(vocab_size), tokens_per_second, max_model_len, step_log)
    sys.exit(run_engine_core(process, lambda _group, _on_failure: NullEngine(config)))


if __name__ == "__main__":
    main()
