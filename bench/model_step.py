"""What the model's part of a step takes: ``python -m bench.model_step MODEL``.

The layers and the logits, without scheduler and sampler. Kernels are compared in turns: every round measures them all.
On a machine that others use ``chrt -f 10`` before the command keeps them off its cores, and ``--threads 1 --cpu-time``
counts what this process computes alone.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import numpy as np
import torch

from core.config import ModelConfig
from core.executor.interface import NewRequest
from core.model.attention.backends import find_backend
from core.model.model import Model
from core.model.registry import load_model
from core.model.request_state import RequestState
from core.model.span import Span
from core.model.step_batch import StepBatch
from core.native import KERNELS
from core.wire.sampling_params import SamplingParams

_BLOCK_SIZE = 16
_STEPS = {
    "decode 1 of 200 tokens": (1, 199, 1),
    "decode 1 of 1,800": (1, 1799, 1),
    "decode 32 of 200": (32, 199, 1),
    "prefill 4 of 128": (4, 0, 128),
    "prefill 512": (1, 0, 512),
    "prefill 512 after 512": (1, 512, 512),
}
"""Requests, where each of them is, and how many tokens are computed of each."""


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.argument("model", type=click.Path(path_type=Path, exists=True))
@click.option("--kernels", multiple=True, type=click.Choice(KERNELS), default=("auto",), help="Repeatable.")
@click.option("--quantization", type=click.Choice(("auto", "none")), default="auto", help="As for `serve`.")
@click.option("--threads", type=click.IntRange(min=1), default=2, help="That compute.")
@click.option("--rounds", type=click.IntRange(min=1), default=10, help="The fastest and the median are shown.")
@click.option("--cpu-time", is_flag=True, help="Of this process, in place of the time that passes.")
def main(model: Path, kernels: tuple[str, ...], quantization: str, threads: int, rounds: int, cpu_time: bool) -> None:
    """Milliseconds of steps of MODEL, a .gguf file or a folder."""
    torch.set_num_threads(threads)
    clock = time.process_time if cpu_time else time.perf_counter
    steps = {name: _Steps(load_model(ModelConfig(model, quantization=quantization, kernels=name))) for name in kernels}
    for step, sizes in _STEPS.items():
        taken: dict[str, list[float]] = {name: [] for name in kernels}
        for _ in range(rounds):
            for name, of_kernels in steps.items():
                taken[name].append(1e3 * of_kernels.seconds(*sizes, clock))
        figures = "  ".join(f"{name} {min(ms):8.2f} (median {np.median(ms):8.2f})" for name, ms in taken.items())
        click.echo(f"{step:24} {figures} ms")


class _Steps:
    """Of one model, over a cache whose contents do not matter."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._backend = find_backend("auto", model, _BLOCK_SIZE)
        longest = max(count * -(-(start + length) // _BLOCK_SIZE) for count, start, length in _STEPS.values())
        self._cache = self._backend.make_cache(1 + longest)

    @torch.inference_mode()
    def seconds(self, count: int, start: int, length: int, clock: Callable[[], float]) -> float:
        """That a step of ``length`` tokens of each of ``count`` requests takes, which are at ``start``."""
        spans = [Span(_request(number, start + length), start, length) for number in range(count)]
        batch = StepBatch(spans, self._cache, self._backend.attend)
        begun = clock()
        hidden = self._model.forward(self._model.embed(batch.token_ids), batch.positions, batch.attention)
        self._model.logits(hidden[_last_rows(batch.ends)])
        return clock() - begun


def _last_rows(ends: Sequence[int]) -> list[int]:
    return [end - 1 for end in ends]


def _request(number: int, num_tokens: int) -> RequestState:
    num_blocks = -(-num_tokens // _BLOCK_SIZE)
    blocks = list(range(1 + number * num_blocks, 1 + (number + 1) * num_blocks))
    token_ids = np.random.default_rng(number).integers(5, 1000, num_tokens).tolist()
    return RequestState(NewRequest(str(number), token_ids, num_tokens, SamplingParams(), 0, [blocks], 0))


if __name__ == "__main__":
    main()
