"""What a step costs beside the model's own computation: ``python -m bench.step_overhead MODEL.gguf``.

A stand-in computes in the model's place, for ``--forward-ms`` and on one core, in one call that lets go of the
interpreter as native kernels do, and leaves as little in the caches as they do. Everything around it is real:
scheduler, batch, embedding, sampler, threads.

The first table has the parts of a step, one after the other, in CPU time of the one thread they then run on. The second
has, with a core's own threads, the time from the end of one forward to the start of the next, embedding and logits
included.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from core.config import CacheConfig, ModelConfig, SchedulerConfig
from core.engine import EngineCore
from core.executor.in_process import InProcessExecutor
from core.executor.interface import ModelRunnerOutput, SchedulerOutput
from core.executor.profiler import Profiler
from core.model.architecture import ModelShape
from core.model.model import Model, StepAttention
from core.model.registry import load_model
from core.native.kernels import Kernels
from core.wire.codec import Encoder
from core.wire.messages import EngineCoreRequest
from core.wire.sampling_params import SamplingParams

_PROMPT_LEN = 128
_NUM_TOKEN_IDS = 128
"""Of those in prompts: every vocabulary has as many."""
_NUM_STEPS = 100
_KV_CACHE_BYTES = 1 << 30
_SAMPLINGS: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0.0}, "random": {"temperature": 0.8}}
_HASHED_BYTES = 1 << 20
_PARTS = ("schedule", "batch", "embed", "logits", "sample", "update", "encode")


@dataclass
class Stopwatch:
    """By part, the seconds of this thread's CPU time that each step took for it."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    last: float = 0.0

    def lap(self, part: str) -> None:
        """What has passed since the last call belongs to ``part``."""
        now = time.thread_time()
        self.seconds.setdefault(part, []).append(now - self.last)
        self.last = now

    def best(self, part: str) -> float:
        """Microseconds."""
        return _best(self.seconds[part])


class StandIn:
    """A model that embeds as ``model`` does and computes nothing for ``forward_s``."""

    def __init__(self, model: Model, forward_s: float, max_rows: int, watch: Stopwatch) -> None:
        self._model, self._watch = model, watch
        self._data = bytes(round(_HASHED_BYTES * forward_s / _time_of_hash()))
        shape = max_rows, model.architecture.vocab_size
        self._logits = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        self.gaps: list[float] = []
        self._left_at = 0.0

    @property
    def architecture(self) -> ModelShape:
        return self._model.architecture

    @property
    def device(self) -> torch.device:
        return self._model.device

    @property
    def dtype(self) -> torch.dtype:
        return self._model.dtype

    @property
    def kv_dtype(self) -> torch.dtype:
        return self._model.kv_dtype

    @property
    def native_kernels(self) -> Kernels | None:
        return self._model.native_kernels

    @property
    def num_weight_bytes(self) -> int:
        return self._model.num_weight_bytes

    def embed(self, token_ids: Tensor) -> Tensor:
        self._watch.lap("batch")
        rows = self._model.embed(token_ids)
        self._watch.lap("embed")
        return rows

    def forward(self, inputs: Tensor, _positions: Tensor, _attention: StepAttention) -> Tensor:
        self.gaps.append(time.perf_counter() - self._left_at)
        hashlib.sha256(self._data)
        self._left_at = time.perf_counter()
        self._watch.lap("forward")
        return inputs

    def logits(self, hidden: Tensor) -> Tensor:
        logits = self._logits[: len(hidden)].clone()
        self._watch.lap("logits")
        return logits


class OneByOne(InProcessExecutor):
    """Runs a step where it is asked to."""

    max_concurrent_batches = 1
    watch: Stopwatch

    def execute_model(self, scheduler_output: SchedulerOutput) -> "Future[ModelRunnerOutput]":
        self.watch.lap("schedule")
        future: Future[ModelRunnerOutput] = Future()
        future.set_result(self._execute(scheduler_output, lambda: None))
        self.watch.lap("sample")
        return future


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--concurrency", type=int, multiple=True, default=(1, 32), show_default=True, help="Requests at once.")
@click.option("--forward-ms", type=float, default=3.0, show_default=True, help="What the stand-in takes.")
def main(model: Path, concurrency: tuple[int, ...], forward_ms: float) -> None:
    """Measure with MODEL's shape and embedding, a .gguf file or a folder."""
    loaded = load_model(ModelConfig(model))
    cases = [(number, name) for number in concurrency for name in _SAMPLINGS]
    click.echo(f"{'µs a step':16}" + "".join(f"{part:>10}" for part in (*_PARTS, "in all")))
    for number, name in cases:
        _show_parts(f"{number} {name}", loaded, number, SamplingParams(**_SAMPLINGS[name]), forward_ms / 1000)
    click.echo(f"\n{'µs of gap':16}{'in turn':>10}{'async':>10}   between forwards of {forward_ms:g} ms")
    for number, name in cases:
        params = SamplingParams(**_SAMPLINGS[name])
        gaps = [_gap(loaded, number, params, forward_ms / 1000, is_async) for is_async in (False, True)]
        click.echo(f"{number} {name}".ljust(16) + "".join(f"{gap:10.0f}" for gap in gaps))


def _show_parts(title: str, model: Model, concurrency: int, params: SamplingParams, forward_s: float) -> None:
    watch = Stopwatch()
    stand_in = StandIn(model, forward_s, concurrency, watch)
    executor = OneByOne(lambda: stand_in, Profiler(None, ""))
    executor.watch = watch
    encoder, buffer = Encoder(), bytearray()
    for outputs in _steps(executor, concurrency, params, watch):
        watch.lap("update")
        for message in outputs.values():
            encoder.encode_into(message, buffer)
        watch.lap("encode")
    executor.shutdown()
    best = [watch.best(part) for part in _PARTS]
    click.echo(f"{title:16}" + "".join(f"{part:10.0f}" for part in (*best, sum(best))))


def _gap(model: Model, concurrency: int, params: SamplingParams, forward_s: float, async_scheduling: bool) -> float:
    """Microseconds."""
    watch = Stopwatch()
    stand_in = StandIn(model, forward_s, concurrency, watch)
    executor = InProcessExecutor(lambda: stand_in, Profiler(None, ""))
    for _ in _steps(executor, concurrency, params, watch, async_scheduling):
        pass
    executor.shutdown()
    return _best(stand_in.gaps[-_NUM_STEPS:])


def _steps(
    executor: InProcessExecutor,
    concurrency: int,
    params: SamplingParams,
    watch: Stopwatch,
    async_scheduling: bool = False,
) -> Iterator[dict[int, Any]]:
    """The outputs of each step in which all requests decode."""
    config = SchedulerConfig(concurrency, _PROMPT_LEN * concurrency, async_scheduling)
    engine = EngineCore(executor, CacheConfig(kv_cache_memory_bytes=_KV_CACHE_BYTES), config, max_model_len=1024)
    params.max_tokens, params.ignore_eos = _NUM_STEPS + 8, True
    for index in range(concurrency):
        prompt = [(index * 104729 + position * 31) % _NUM_TOKEN_IDS for position in range(_PROMPT_LEN)]
        message = EngineCoreRequest(f"request-{index}", prompt, None, params, None, 0.0, None, None, None)
        engine.add_request(engine.preprocess_add_request(message))
    while engine.has_requests():
        watch.last = time.thread_time()
        yield engine.step()[0]


def _best(seconds: list[float]) -> float:
    """In microseconds, what a tenth of them are below: a busy machine adds to the others."""
    return sorted(seconds)[len(seconds) // 10] * 1e6


def _time_of_hash() -> float:
    """Seconds for ``_HASHED_BYTES``, at best."""
    return min(_timed(lambda: hashlib.sha256(bytes(_HASHED_BYTES))) for _ in range(50))


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
