"""Whether ranks that share a model give its tokens, and what it takes them: ``python -m bench.tensor_parallel MODEL``.

With ``--reference FILE`` (tests/data/reference) its prompts, each as far as its greedy tokens go and the reference is
clear; else random ones, compared with those of one process. All run at once, then one alone, which is what a decoded
token takes. On a machine that others use, set OMP_NUM_THREADS=1.
"""

import json
import time
from pathlib import Path
from typing import Any

import click

from core.config import CacheConfig, ModelConfig, SchedulerConfig
from core.engine import EngineCore
from core.executor.in_process import InProcessExecutor
from core.executor.interface import Executor
from core.executor.multi_process import MultiProcessExecutor
from core.hosts import Hosts
from core.wire.messages import EngineCoreRequest
from core.wire.sampling_params import SamplingParams

_KV_CACHE_BYTES = 256 << 20
_CLEAR_MARGIN = 0.02
"""Below this gap to the second best token, two correct implementations may differ."""
_NUM_TIMED = 32
Cases = list[dict[str, Any]]


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--size", "sizes", type=click.IntRange(min=1), multiple=True, default=(1, 2), help="Ranks. Repeatable.")
@click.option("--reference", type=click.Path(exists=True, path_type=Path), help="JSON of prompts and greedy tokens.")
@click.option("--device", default="cpu", show_default=True, help="Where the ranks run.")
@click.option("--dtype", default="auto", show_default=True, help="Of the computation.")
def main(model: Path, sizes: tuple[int, ...], reference: Path | None, device: str, dtype: str) -> None:
    """Compare tokens and times of MODEL, a .gguf file or a folder, at every --size."""
    cases = json.loads(reference.read_text())["cases"] if reference else None
    for size in sizes:
        executor = _load(ModelConfig(model, dtype, device=device, quantization="none"), size)
        try:
            cases = _measure(executor, size, cases)
        finally:
            executor.shutdown()


def _load(config: ModelConfig, size: int) -> Executor:
    return InProcessExecutor.load(config) if size == 1 else MultiProcessExecutor(config, Hosts(size))


def _measure(executor: Executor, size: int, cases: Cases | None) -> Cases:
    """Without ``cases`` those that the executor gives."""
    cache = CacheConfig(kv_cache_memory_bytes=_KV_CACHE_BYTES, enable_prefix_caching=False)
    engine = EngineCore(executor, cache, SchedulerConfig(), min(executor.model_info.max_model_len, 1024))
    asked = cases or _random_cases(executor.model_info.vocab_size)
    start = time.perf_counter()
    answers = _run(engine, [(case["prompt_token_ids"], len(case["greedy_token_ids"])) for case in asked])
    all_s = time.perf_counter() - start
    start = time.perf_counter()
    _run(engine, [(asked[0]["prompt_token_ids"], _NUM_TIMED)])
    token_ms = (time.perf_counter() - start) / _NUM_TIMED * 1000
    wrong = [index for index, case in enumerate(asked) if cases and not _is_right(case, answers[index])]
    verdict = f"{len(asked) - len(wrong)} of {len(asked)} right" if cases else "the tokens to compare with"
    click.echo(f"{size} ranks: {verdict}; all at once {all_s:.2f} s, one alone {token_ms:.1f} ms a token")
    if wrong:
        raise click.ClickException(f"cases {wrong} differ")
    return cases or [case | {"greedy_token_ids": answers[index]} for index, case in enumerate(asked)]


def _random_cases(vocab_size: int) -> Cases:
    prompts = [[(index * 104_729 + place * 31) % vocab_size for place in range(8 << index)] for index in range(4)]
    return [{"prompt_token_ids": prompt, "greedy_token_ids": [0] * _NUM_TIMED} for prompt in prompts]


def _is_right(case: dict[str, Any], answer: list[int]) -> bool:
    for step, (token_id, expected) in enumerate(zip(answer, case["greedy_token_ids"], strict=True)):
        if token_id != expected:
            return "top1_margin" in case and case["top1_margin"][step] < _CLEAR_MARGIN
    return True


def _run(engine: EngineCore, asked: list[tuple[list[int], int]]) -> list[list[int]]:
    """The greedy tokens of each prompt, as many as it says."""
    answers: dict[str, list[int]] = {str(index): [] for index in range(len(asked))}
    for index, (prompt, count) in enumerate(asked):
        params = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
        message = EngineCoreRequest(str(index), prompt, None, params, None, 0.0, None, None, None)
        engine.add_request(engine.preprocess_add_request(message))
    while engine.has_requests():
        for outputs in engine.step()[0].values():
            for output in outputs.outputs:
                answers[output.request_id] += output.new_token_ids
    return list(answers.values())


if __name__ == "__main__":
    main()
