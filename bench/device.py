"""`python -m bench.device`: does another device give the CPU's tokens, and how fast is it there?

Greedy answers in float32 are compared first, token by token up to the first choice that was not clear. The speed is
that of `sluicegate bench`, with every dtype that is asked for.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import click
import uvloop
from rich.console import Console

from bench.benchmark import Benchmark, Target
from bench.report import as_table, title
from bench.server_process import ServerProcess
from bench.workload import WORKLOADS
from sluicegate_client import Client, Generation

CLEAR_MARGIN = 0.02
"""Below this log-probability gap to the second best token, two correct devices may differ."""
_PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived",
    "def fibonacci(n):",
    "Water boils when",
    "The three most important inventions of the twentieth century were",
)
_MAX_TOKENS = 64
_START_TIMEOUT_S = 300.0
_STOP_TIMEOUT_S = 60.0
_CROWD = 128
"""Requests that run together in the last workload; more than a CPU would be asked for."""


@click.command()
@click.argument("model", default="smollm2-135m")
@click.option("--device", default="cuda", show_default=True, help="What to compare with the CPU.")
@click.option("--dtype", "dtypes", multiple=True, default=("float32", "bfloat16"), show_default=True)
@click.option("--flash", is_flag=True, help="Attention by FlashAttention, compared with torch's in the first dtype.")
def main(model: str, device: str, dtypes: tuple[str, ...], flash: bool) -> None:
    """Compare MODEL on a device with MODEL on the CPU, then put load on the device."""
    if flash:
        here, there = _Place(device, dtypes[0]), _Place(device, dtypes[0], flash=True)
    else:
        here, there = _Place("cpu", "float32"), _Place(device, "float32")
    differences = _differences(_answers(model, here), _answers(model, there))
    for difference in differences:
        click.echo(difference, err=True)
    click.echo(f"{there} gives the tokens of {here}: {'no' if differences else 'yes'}, {len(_PROMPTS)} prompts")
    for dtype in dtypes:
        place = _Place(device, dtype, flash)
        with _serving(model, place) as address:
            _measure(address, str(place))
    sys.exit(bool(differences))


class _Place(NamedTuple):
    device: str
    dtype: str
    flash: bool = False

    def __str__(self) -> str:
        return f"{self.device} {self.dtype}{' flash' if self.flash else ''}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Torch's FlashAttention wants pages of 256 tokens, or a multiple."""
        flash = ("--attention-backend", "flash", "--block-size", "256") if self.flash else ()
        return ("--device", self.device, "--dtype", self.dtype, *flash)


@contextmanager
def _serving(model: str, place: _Place) -> Iterator[str]:
    addresses = ("--grpc-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0")
    engine = (*place.flags, "--max-num-seqs", str(_CROWD))
    with ServerProcess(["serve", model, *addresses, *engine]) as server:
        yield server.wait_until_ready(_START_TIMEOUT_S)
        server.terminate(_STOP_TIMEOUT_S)


def _answers(model: str, place: _Place) -> list[Generation]:
    with _serving(model, place) as address, Client(address) as client:
        return [client.generate(prompt, temperature=0, max_tokens=_MAX_TOKENS, logprobs=2) for prompt in _PROMPTS]


def _differences(expected: Sequence[Generation], found: Sequence[Generation]) -> list[str]:
    """One line for each prompt whose answers part at a choice that was clear."""
    lines = []
    for prompt, here, there in zip(_PROMPTS, expected, found, strict=True):
        pairs = zip(here.logprobs, there.logprobs, strict=False)
        step = next((i for i, (a, b) in enumerate(pairs) if a.token_id != b.token_id), None)
        if step is not None and (margin := _margin(here, step)) >= CLEAR_MARGIN:
            lines.append(f"{prompt!r}: other token at step {step}, although the margin was {margin:.3f}")
    return lines


def _margin(generation: Generation, step: int) -> float:
    best, second, *_ = sorted(generation.logprobs[step].top.values(), reverse=True)
    return best - second


def _measure(address: str, name: str) -> None:
    console = Console()
    crowd = replace(WORKLOADS["W2"], name="W2", num_requests=2 * _CROWD, concurrency=_CROWD)
    for workload in (WORKLOADS["W1"], WORKLOADS["W2"], WORKLOADS["W3"], crowd):
        for result in uvloop.run(Benchmark(workload, Target(address, 600.0), lambda: None).run()):
            console.print(f"{name}, {title(workload, result.name)}", soft_wrap=True)
            console.print(as_table(result), "")


if __name__ == "__main__":
    main()
