"""What scheduling the next step while one runs is worth: ``python -m bench.async_scheduling MODEL.gguf``.

One model, two engines around it that take turns, with and without. Each pair of runs gives one ratio of output tokens
per second: those hold on a machine that others use too, where the rates do not. The tokens must be the same. On such a
machine set OMP_NUM_THREADS=1: threads that wait for each other measure the others.
"""

import statistics
import time
from pathlib import Path

import click

from core.config import CacheConfig, ModelConfig, SchedulerConfig
from core.engine import EngineCore
from core.executor.in_process import InProcessExecutor
from core.wire.messages import EngineCoreRequest
from core.wire.sampling_params import SamplingParams

_PROMPT_LEN = 16
_NUM_TOKEN_IDS = 128
"""Of those in prompts: every vocabulary has as many."""
_KV_CACHE_BYTES = 512 << 20
Tokens = dict[str, list[int]]


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--concurrency", type=click.IntRange(min=1), default=1, show_default=True, help="Requests at once.")
@click.option("--tokens", type=click.IntRange(min=1), default=32, show_default=True, help="Output of each request.")
@click.option("--pairs", type=click.IntRange(min=1), default=5, show_default=True, help="Pairs of runs.")
@click.option("--device", default="cpu", show_default=True, help="Where the model runs.")
def main(model: Path, concurrency: int, tokens: int, pairs: int, device: str) -> None:
    """Compare the two with MODEL, a .gguf file or a folder."""
    executor = InProcessExecutor.load(ModelConfig(model, device=device))
    engines = {on: _make_engine(executor, concurrency, on) for on in (False, True)}
    ratios = []
    for pair in range(-1, pairs):  # the first warms up
        order = (False, True) if pair % 2 else (True, False)
        rates, answers = zip(*(_run(engines[on], pair, concurrency, tokens) for on in order), strict=True)
        if answers[0] != answers[1]:
            raise click.ClickException("the tokens differ")
        if pair >= 0:
            off, on = (rates[order.index(which)] for which in (False, True))
            ratios.append(on / off)
            click.echo(f"one step at a time {off:8.1f} tokens/s   async {on:8.1f} tokens/s   ratio {on / off:.3f}")
    click.echo(f"median ratio {statistics.median(ratios):.3f}")
    executor.shutdown()


def _make_engine(executor: InProcessExecutor, concurrency: int, async_scheduling: bool) -> EngineCore:
    cache = CacheConfig(kv_cache_memory_bytes=_KV_CACHE_BYTES, enable_prefix_caching=False)
    return EngineCore(executor, cache, SchedulerConfig(concurrency, 512, async_scheduling), max_model_len=512)


def _run(engine: EngineCore, seed: int, concurrency: int, tokens: int) -> tuple[float, Tokens]:
    """Output tokens per second, and what they were."""
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    for index in range(concurrency):
        prompt = [(seed * 7919 + index * 104729 + position * 31) % _NUM_TOKEN_IDS for position in range(_PROMPT_LEN)]
        message = EngineCoreRequest(f"r{index}", prompt, None, params, None, 0.0, None, None, None)
        engine.add_request(engine.preprocess_add_request(message))
    answers: Tokens = {}
    start = time.perf_counter()
    while engine.has_requests():
        for outputs in engine.step()[0].values():
            for output in outputs.outputs:
                answers.setdefault(output.request_id, []).extend(output.new_token_ids)
    return concurrency * tokens / (time.perf_counter() - start), answers


if __name__ == "__main__":
    main()
