"""What drafts are worth: ``python -m bench.speculation FOLDER``, a model folder with a tokenizer.json.

One model, two engines around it that take turns, with and without drafts. The tokens must be the same. What counts is
output tokens per second of CPU time while all requests decode, so that a machine that others use too gives the same
numbers: with OMP_NUM_THREADS=1, since threads that wait for each other use CPU time. On a GPU it is the wall's time.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click
from tokenizers import Tokenizer

from core.config import CacheConfig, ModelConfig, SchedulerConfig, SpeculationConfig
from core.engine import EngineCore
from core.executor.in_process import InProcessExecutor
from core.wire.messages import EngineCoreRequest
from core.wire.sampling_params import SamplingParams

_KV_CACHE_BYTES = 512 << 20
_ARTICLE = """The harbour of the old town was built in 1843, when the fishing fleet had grown to more than ninety boats.
Its outer wall is made of granite from the quarries on the northern hills, carried down by a railway that ran for only
twelve years. In the winter of 1871 a storm broke the eastern end of the wall, and the council asked the engineer Maria
Holm to rebuild it. She added a second, lower wall behind the first, which takes the force of the waves that come over
it. The design was copied along the whole coast, and her drawings are kept in the town's museum."""
_CODE = """def read_orders(path):
    orders = []
    with open(path) as file:
        for line in file:
            name, count, price = line.strip().split(",")
            orders.append({"name": name, "count": int(count), "price": float(price)})
    return orders


def total(orders):
    return sum(order["count"] * order["price"] for order in orders)"""
_QUESTIONS = {
    "copy": [f"Repeat the following text word for word:\n\n{_ARTICLE}", f"Copy this code exactly:\n\n{_CODE}"],
    "edit": [
        f"Rename the function total to sum_of_orders in this code and show all of it:\n\n{_CODE}",
        f"Correct the spelling of this text and show all of it:\n\n{_ARTICLE}",
    ],
    "summary": [f"Summarise this text:\n\n{_ARTICLE}", f"Explain what this code does:\n\n{_CODE}"],
    "prose": [
        "Write a story about a lighthouse keeper who finds a map.",
        "How do plants use sunlight? Explain in detail.",
    ],
}
Tokens = dict[str, list[int]]


@dataclass
class Outcome:
    """Of one run. ``num_accepted_tokens`` of ``num_draft_tokens`` were right."""

    tokens: Tokens = field(default_factory=dict)
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    tokens_per_s: float = 0.0


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--kind", type=click.Choice([*_QUESTIONS]), multiple=True, help="What is asked. Default: each in turn.")
@click.option("--temperature", type=float, default=0.0, show_default=True)
@click.option("--concurrency", type=click.IntRange(min=1), default=1, show_default=True, help="Requests at once.")
@click.option("--tokens", type=click.IntRange(min=1), default=96, show_default=True, help="Output of each request.")
@click.option("--pairs", type=click.IntRange(min=1), default=3, show_default=True, help="Pairs of runs.")
@click.option("--num-speculative-tokens", type=int, default=5, show_default=True)
@click.option("--prompt-lookup-max", type=int, default=SpeculationConfig.prompt_lookup_max, show_default=True)
@click.option("--prompt-lookup-min", type=int, default=SpeculationConfig.prompt_lookup_min, show_default=True)
@click.option("--device", default="cpu", show_default=True, help="Where the model runs.")
def main(
    folder: Path,
    kind: tuple[str, ...],
    temperature: float,
    concurrency: int,
    tokens: int,
    pairs: int,
    num_speculative_tokens: int,
    prompt_lookup_max: int,
    prompt_lookup_min: int,
    device: str,
) -> None:
    """Compare the two with the model in FOLDER."""
    executor = InProcessExecutor.load(ModelConfig(folder, device=device))
    drafting = SpeculationConfig(num_speculative_tokens, prompt_lookup_max, prompt_lookup_min)
    engines = [_make_engine(executor, concurrency, config) for config in (SpeculationConfig(), drafting)]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    params = SamplingParams(temperature=temperature, max_tokens=tokens, ignore_eos=True, seed=1)
    clock = time.process_time if device == "cpu" else time.perf_counter
    for name in kind or _QUESTIONS:
        prompts = [tokenizer.encode(_as_chat(question)).ids for question in _QUESTIONS[name]]
        asked = [prompts[index % len(prompts)] for index in range(max(concurrency, len(prompts)))]
        _compare(name, engines, asked, params, concurrency, pairs, clock)
    executor.shutdown()


def _compare(
    name: str,
    engines: list[EngineCore],
    prompts: list[list[int]],
    params: SamplingParams,
    concurrency: int,
    pairs: int,
    clock: Callable[[], float],
) -> None:
    ratios, outcomes = [], [Outcome(), Outcome()]
    for pair in range(pairs):
        for which in (0, 1) if pair % 2 else (1, 0):
            outcomes[which] = _run(engines[which], prompts, params, concurrency, clock)
        if outcomes[0].tokens != outcomes[1].tokens:
            raise click.ClickException(f"{name}: the tokens differ")
        ratios.append(outcomes[1].tokens_per_s / outcomes[0].tokens_per_s)
    plain, drafted = outcomes
    num_tokens = sum(map(len, drafted.tokens.values()))
    rates = f"{plain.tokens_per_s:7.1f} -> {drafted.tokens_per_s:7.1f} tokens/s"
    right = f"{drafted.num_accepted_tokens} of {drafted.num_draft_tokens} drafted are right"
    click.echo(f"{name:8} {rates}, ratio {statistics.median(ratios):.2f}; {right}, {num_tokens} tokens")


def _as_chat(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def _make_engine(executor: InProcessExecutor, concurrency: int, speculation: SpeculationConfig) -> EngineCore:
    cache = CacheConfig(kv_cache_memory_bytes=_KV_CACHE_BYTES, enable_prefix_caching=False)
    return EngineCore(executor, cache, SchedulerConfig(concurrency, speculation=speculation), max_model_len=1024)


def _run(
    engine: EngineCore,
    prompts: list[list[int]],
    params: SamplingParams,
    concurrency: int,
    clock: Callable[[], float],
) -> Outcome:
    """Decoding alone counts: the clock starts when each of the requests has its first token."""
    outcome, seconds = Outcome(), 0.0
    for first in range(0, len(prompts), concurrency):
        for index, prompt in enumerate(prompts[first : first + concurrency], first):
            message = EngineCoreRequest(f"r{index}", prompt, None, params, None, 0.0, None, None, None)
            engine.add_request(engine.preprocess_add_request(message))
        num_before = len(outcome.tokens)
        while len(outcome.tokens) < min(num_before + concurrency, len(prompts)):
            _step(engine, outcome)
        start = clock()
        while engine.has_requests():
            _step(engine, outcome)
        seconds += clock() - start
    outcome.tokens_per_s = sum(map(len, outcome.tokens.values())) / seconds
    return outcome


def _step(engine: EngineCore, outcome: Outcome) -> None:
    for message in engine.step()[0].values():
        if message.scheduler_stats is not None and (drafts := message.scheduler_stats.spec_decoding_stats) is not None:
            outcome.num_draft_tokens += drafts.num_draft_tokens
            outcome.num_accepted_tokens += drafts.num_accepted_tokens
        for output in message.outputs:
            outcome.tokens.setdefault(output.request_id, []).extend(output.new_token_ids)


if __name__ == "__main__":
    main()
