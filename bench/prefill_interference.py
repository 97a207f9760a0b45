"""What a long prompt does to those who decode: ``python -m bench.prefill_interference MODEL.gguf``.

Streams decode; then a long prompt comes, and decodes with them. Engines around one model take turns, one for each
``--max-itl-stretch``: how far apart the streams' tokens are while nothing else runs and while the prompt is computed,
and how long that takes beside them and alone. On a machine that others use too, set OMP_NUM_THREADS=1 and count CPU
time: what a step waits for a processor is the others' affair, and one bad step in a hundred is a p99.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from core.config import CacheConfig, ModelConfig, SchedulerConfig
from core.engine import EngineCore
from core.executor.in_process import InProcessExecutor
from core.wire.messages import EngineCoreRequest
from core.wire.sampling_params import SamplingParams

_STREAM_PROMPT_TOKENS = 32
_QUIET_TOKENS = 48
_NUM_TOKEN_IDS = 128
"""Of those in prompts: every vocabulary has as many."""
_KV_CACHE_BYTES = 1 << 30
Clock = Callable[[], float]
"""In seconds."""


@dataclass(frozen=True)
class Interference:
    """Of one round, in seconds. ``alone_s``: the long prompt's TTFT on an idle engine, ``beside_s``: beside streams."""

    quiet_s: list[float]
    busy_s: list[float]
    beside_s: float
    alone_s: float

    def __str__(self) -> str:
        quiet = statistics.median(self.quiet_s)
        p99s = [float(np.percentile(itls, 99)) for itls in (self.quiet_s, self.busy_s)]
        return (
            f"quiet ITL {1e3 * quiet:6.1f} ms, p99 {p99s[0] / quiet:5.2f} of it; while a prompt is computed median "
            f"{statistics.median(self.busy_s) / quiet:5.2f}, p99 {p99s[1] / quiet:5.2f}; its TTFT alone "
            f"{self.alone_s:.2f} s, beside streams {self.beside_s:.2f} s: {self.beside_s / self.alone_s:.2f}"
        )


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--streams", type=click.IntRange(min=1), default=1, show_default=True, help="Requests that decode.")
@click.option("--prompt-tokens", type=click.IntRange(min=2), default=1800, show_default=True, help="Of the long one.")
@click.option(
    "--max-itl-stretch",
    "stretches",
    type=float,
    multiple=True,
    default=(0.0, SchedulerConfig.max_itl_stretch),
    show_default=True,
    help="Settings to compare.",
)
@click.option("--max-num-batched-tokens", type=int, default=SchedulerConfig.max_num_batched_tokens, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Of each setting.")
@click.option("--cpu-time", is_flag=True, help="Count this process's CPU time in place of the time that passes.")
@click.option("--device", default="cpu", show_default=True, help="Where the model runs.")
def main(
    model: Path,
    streams: int,
    prompt_tokens: int,
    stretches: tuple[float, ...],
    max_num_batched_tokens: int,
    rounds: int,
    cpu_time: bool,
    device: str,
) -> None:
    """Compare settings with MODEL, a .gguf file or a folder."""
    executor = InProcessExecutor.load(ModelConfig(model, device=device))
    cache = CacheConfig(kv_cache_memory_bytes=_KV_CACHE_BYTES, enable_prefix_caching=False)
    clock = time.process_time if cpu_time else time.perf_counter
    engines = {}
    for stretch in stretches:
        config = SchedulerConfig(streams + 1, max_num_batched_tokens, max_itl_stretch=stretch)
        engines[stretch] = EngineCore(executor, cache, config, prompt_tokens + 1024, clock=clock)
    for round_number in range(-1, rounds):  # the first warms up
        for stretch, engine in engines.items():
            measured = _run(engine, clock, streams, prompt_tokens)
            if round_number >= 0:
                click.echo(f"stretch {stretch:3.1f}: {measured}")
    executor.shutdown()


def _run(engine: EngineCore, clock: Clock, streams: int, prompt_tokens: int) -> Interference:
    _add(engine, "alone", prompt_tokens, max_tokens=1)
    start = clock()
    alone_s = [at - start for at, _ in _steps(engine, clock)][-1]
    for number in range(streams):
        _add(engine, f"stream{number}", _STREAM_PROMPT_TOKENS)
    quiet = _itls(engine, clock, _QUIET_TOKENS)
    _add(engine, "long", prompt_tokens, max_tokens=1)
    start = clock()
    busy: list[float] = []
    for at, request_ids in _steps(engine, clock):
        busy.append(at - start - sum(busy))
        if "long" in request_ids:
            break
    engine.abort_requests([f"stream{number}" for number in range(streams)])
    list(_steps(engine, clock))
    return Interference(quiet, busy, sum(busy), alone_s)


def _itls(engine: EngineCore, clock: Clock, count: int) -> list[float]:
    """The last half of ``count`` times between two steps."""
    ends = [at for at, _ in zip((at for at, _ in _steps(engine, clock)), range(count), strict=False)]
    return [after - before for before, after in zip(ends[count // 2 :], ends[count // 2 + 1 :], strict=False)]


def _steps(engine: EngineCore, clock: Clock) -> Iterator[tuple[float, set[str]]]:
    """When each step ended, and whose tokens it gave."""
    while engine.has_requests():
        outputs, _ = engine.step()
        request_ids = {output.request_id for message in outputs.values() for output in message.outputs}
        yield clock(), request_ids


def _add(engine: EngineCore, request_id: str, num_tokens: int, max_tokens: int = 1000) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    prompt = [(sum(request_id.encode()) + position * 31) % _NUM_TOKEN_IDS for position in range(num_tokens)]
    message = EngineCoreRequest(request_id, prompt, None, params, None, 0.0, None, None, None)
    engine.add_request(engine.preprocess_add_request(message))


if __name__ == "__main__":
    main()
