"""The runner with the real model: its tokens are the reference's, and a request's are its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from core.executor.interface import GrammarBitmask, NewRequest, SchedulerOutput
from core.model.model import Attention, AttentionRule, Model
from core.model.runner import ModelRunner
from core.prompt_embeds import PromptEmbeds
from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor as WireTensor
from tests.core.model.driver import GREEDY, Ask, Driver
from tests.core.model.forward import make_request
from tests.core.model.reference_cases import LOGPROB_TOLERANCE, ask_case, check_case
from tests.core.model.tiny_model import TINY, random_tokens
from tests.model_files import SMOLLM2_CASES

SHORT = 24
"""Tokens of an answer that need not be whole: the whole ones are compared in a batch, and by way of a server."""


@pytest.mark.parametrize("case", SMOLLM2_CASES, ids=lambda case: case["name"])
def test_every_reference_case_gives_its_tokens_alone(smollm2: Model, case: dict[str, Any]) -> None:
    """Greedy tokens and the best five log-probabilities."""
    ask = ask_case(case)
    Driver(ModelRunner(smollm2)).run([ask], min(len(case["greedy_token_ids"]), SHORT))
    check_case(case, ask)


@pytest.mark.parametrize(("budget", "longest"), [(512, 96), (24, SHORT)], ids=["whole-prompts", "chunks"])
def test_all_reference_cases_give_their_tokens_in_one_batch(smollm2: Model, budget: int, longest: int) -> None:
    """Prompts whole, or in chunks beside requests that decode already."""
    asks = [ask_case(case) for case in SMOLLM2_CASES]
    num_tokens = {case["name"]: min(len(case["greedy_token_ids"]), longest) for case in SMOLLM2_CASES}
    Driver(ModelRunner(smollm2)).run(asks, num_tokens, budget)
    for case, ask in zip(SMOLLM2_CASES, asks, strict=True):
        check_case(case, ask)


@pytest.mark.parametrize("budget", [512, 7], ids=["whole-prompts", "chunks"])
def test_prompt_logprobs_are_the_references(smollm2: Model, budget: int) -> None:
    """One row for each prompt token but the first, once, with the first token."""
    asks = [
        Ask(c["name"], c["prompt_token_ids"], SamplingParams(temperature=0.0, prompt_logprobs=2)) for c in SMOLLM2_CASES
    ]
    Driver(ModelRunner(smollm2)).run(asks, 1, budget)
    for case, ask in zip(SMOLLM2_CASES, asks, strict=True):
        assert ask.prompt_logprobs is not None
        token_ids, logprobs, ranks = (part.array for part in ask.prompt_logprobs[:3])
        assert token_ids.shape == logprobs.shape == (len(ask.prompt) - 1, 3)
        assert token_ids[:, 0].tolist() == ask.prompt[1:]
        np.testing.assert_allclose(logprobs[:, 0], case["prompt_logprobs"][1:], atol=LOGPROB_TOLERANCE)
        assert ((ranks == 1) == (token_ids[:, 0] == token_ids[:, 1])).all()


def seeded(request_id: str, seed: int) -> Ask:
    params = SamplingParams(temperature=0.9, seed=seed)
    return Ask(request_id, random_tokens(20 + seed, 49_152, seed), params, seed)


def test_seeded_tokens_do_not_depend_on_the_neighbours(smollm2: Model) -> None:
    """Seed 7, temperature 0.9: alone, beside seven others, and beside others with prompts in chunks."""
    runner = ModelRunner(smollm2)
    alone, beside, chunked = seeded("a", 7), seeded("b", 7), seeded("c", 7)
    Driver(runner).run([alone], 12)
    others = [seeded(f"other {seed}", seed) for seed in range(20, 27)]
    Driver(runner).run([*others[:4], beside, *others[4:]], 12)
    Driver(runner).run([seeded("d", 40), chunked, seeded("e", 41)], 12, budget=13)
    assert alone.output == beside.output == chunked.output
    assert len({tuple(other.output) for other in others}) == len(others)


def test_a_preempted_request_goes_on_with_the_tokens_it_would_have_had(smollm2: Model) -> None:
    """Resubmitted with the tokens so far, into other blocks, greedy as well as seeded."""
    runner = ModelRunner(smollm2)
    expected = [seeded("a", 7), Ask("b", random_tokens(40, 49_152), GREEDY)]
    Driver(runner).run(expected, 14)
    resumed = [seeded("a", 7), Ask("b", random_tokens(40, 49_152), GREEDY)]
    driver = Driver(runner)
    driver.run(resumed, 9)
    driver.finish(*resumed)
    driver.run([seeded("c", 50)], 5)
    driver.run(resumed, 14, budget=16)
    assert [ask.output for ask in resumed] == [ask.output for ask in expected]


@pytest.mark.parametrize("length", [47, 48, 49])
def test_a_cached_prefix_does_not_change_the_tokens(smollm2: Model, length: int) -> None:
    """Prompts of just under, exactly and just over three blocks, with every full block before the last token cached."""
    driver = Driver(ModelRunner(smollm2))
    cold = Ask("cold", random_tokens(length, 49_152), GREEDY)
    driver.run([cold], 8)
    num_cached = (length - 1) // 16 * 16
    warm = Ask("warm", cold.prompt, GREEDY, blocks=cold.blocks[: num_cached // 16], num_computed=num_cached)
    driver.run([warm], 8)
    assert warm.output == cold.output


class PoisonedModel:
    """The tiny model, but a token of this id makes the logits and the keys and values of its request NaN."""

    POISON = 13

    def __init__(self, model: Model) -> None:
        self._model = model
        self.architecture, self.device, self.dtype = model.architecture, model.device, model.dtype
        self.kv_dtype, self.native_kernels = model.kv_dtype, None

    def embed(self, token_ids: Tensor) -> Tensor:
        self._is_poisoned = token_ids == self.POISON
        return self._model.embed(token_ids)

    def forward(self, inputs: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        return self._model.forward(inputs, positions, _PoisonedAttention(attention, self._is_poisoned))

    def logits(self, hidden: Tensor) -> Tensor:
        return self._model.logits(hidden)


class _PoisonedAttention:
    def __init__(self, attention: Attention, is_poisoned: Tensor) -> None:
        self._attention, self._is_poisoned = attention, is_poisoned

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: AttentionRule) -> Tensor:
        poison = torch.where(self._is_poisoned, torch.nan, 0.0)[:, None, None]
        return self._attention.attend(layer, query, key + poison, value + poison, rule)


def test_nan_logits_are_reported_and_neighbours_are_exact(tiny: Model) -> None:
    """Greedy and random rows; the count is the row's; no other request notices."""
    clean = [token for token in random_tokens(60, TINY.vocab_size) if token != PoisonedModel.POISON]

    def asks() -> list[Ask]:
        random = SamplingParams(temperature=0.8, top_p=0.9, top_k=40, min_p=0.01)
        return [Ask("greedy", clean[:20], GREEDY), Ask("random", clean[20:45], random, seed=3)]

    expected, beside = asks(), asks()
    poisoned = [
        Ask("bad greedy", [*clean[:5], PoisonedModel.POISON], GREEDY),
        Ask("bad random", [*clean[:5], PoisonedModel.POISON], SamplingParams(temperature=1.0, top_p=0.9, logprobs=3)),
    ]
    runner = ModelRunner(PoisonedModel(tiny))
    Driver(runner).run(expected, 3)
    Driver(runner).run([poisoned[0], beside[0], poisoned[1], beside[1]], 3)
    assert [ask.output for ask in beside] == [ask.output for ask in expected]
    assert [ask.num_nans for ask in beside] == [0, 0]
    assert [ask.num_nans for ask in poisoned] == [3 * TINY.vocab_size] * 2


def test_what_a_block_held_before_never_shows(tiny: Model) -> None:
    """Requests of different lengths that take over blocks full of NaN get the tokens they get from fresh ones."""
    clean = [token for token in random_tokens(60, TINY.vocab_size) if token != PoisonedModel.POISON]
    runner = ModelRunner(PoisonedModel(tiny))
    expected, again = ([Ask("a", clean[:30], GREEDY), Ask("b", clean[30:40], GREEDY)] for _ in range(2))
    Driver(runner).run(expected, 20)
    driver = Driver(runner, num_blocks=9)
    poisoned = Ask("bad", [PoisonedModel.POISON] * 8 * 16, GREEDY)
    driver.run([poisoned], 1)
    driver.finish(poisoned)
    driver.run(again, 20)
    assert [ask.output for ask in again] == [ask.output for ask in expected]


def rows_of(model: Model, prompt: list[int], is_token: Sequence[bool], dtype: str = "float32") -> PromptEmbeds:
    """The model's own embeddings of ``prompt`` where ``is_token`` is false, zeros elsewhere."""
    rows = model.embed(torch.tensor(prompt)).to(getattr(torch, dtype))
    rows[torch.tensor(is_token)] = 0
    array = (rows.view(torch.uint16) if dtype == "bfloat16" else rows).numpy()
    read_only = np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
    return PromptEmbeds(WireTensor(read_only, dtype), np.array(is_token))


def given_as_rows(model: Model, ask: Ask, every: int = 1) -> Ask:
    """``ask``, its prompt given as rows but for each ``every``-th position, which is a token; 1 = rows alone."""
    is_token = [every > 1 and position % every == 0 for position in range(len(ask.prompt))]
    prompt = [token if known else 0 for token, known in zip(ask.prompt, is_token, strict=True)]
    embeds = rows_of(model, ask.prompt, is_token)
    return Ask(f"{ask.request_id} as rows, {every}", prompt, ask.params, ask.seed, embeds=embeds)


@pytest.mark.parametrize("budget", [512, 9], ids=["whole-prompts", "chunks"])
def test_the_models_own_embeddings_give_the_tokens_of_the_tokens(smollm2: Model, budget: int) -> None:
    """As rows alone, and as every third position a token; beside each other and a prompt of tokens; greedy, seeded."""
    runner = ModelRunner(smollm2)
    by_token = [Ask("a", random_tokens(20, 49_152), GREEDY), seeded("b", 0)]
    Driver(runner).run(by_token, 4)
    by_row = [given_as_rows(smollm2, ask, every) for ask in by_token for every in (1, 3)]
    Driver(runner).run([seeded("c", 1), *by_row], 4, budget)
    assert [ask.output for ask in by_row] == [ask.output for ask in by_token for _ in range(2)]


def test_rows_survive_a_preemption_and_a_cached_prefix(tiny: Model) -> None:
    """Computed again in other blocks from the rows that were kept; or from the middle of the prompt on."""
    expected = Ask("a", random_tokens(40, TINY.vocab_size), GREEDY)
    Driver(ModelRunner(tiny)).run([expected], 24)
    driver = Driver(ModelRunner(tiny))
    resumed = given_as_rows(tiny, expected)
    driver.run([resumed], 9)
    driver.finish(resumed)
    driver.run([Ask("b", random_tokens(20, TINY.vocab_size, 1), GREEDY)], 5)
    driver.run([resumed], 24, budget=16)
    warm = given_as_rows(tiny, expected, every=2)
    warm.blocks, warm.num_computed = resumed.blocks[:2], 32
    driver.run([warm], 24)
    assert resumed.output == warm.output == expected.output


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_rows_of_every_type_are_read_as_what_they_are(tiny: Model, dtype: str) -> None:
    """The same numbers in another type give the same tokens."""
    rounded = rows_of(tiny, random_tokens(20, TINY.vocab_size), [False] * 20, dtype)
    stored = torch.from_numpy(rounded.rows.array.copy())
    exact = (stored.view(torch.bfloat16) if dtype == "bfloat16" else stored).float().numpy()
    asks = [
        Ask(name, [0] * 20, GREEDY, embeds=PromptEmbeds(rows, rounded.is_token))
        for name, rows in (("rounded", rounded.rows), ("exact", WireTensor(exact)))
    ]
    Driver(ModelRunner(tiny)).run(asks, 8)
    assert asks[0].output == asks[1].output


def test_a_placeholder_is_not_penalized(tiny: Model) -> None:
    """Rows are no tokens that were seen: a repetition penalty looks at the tokens of the prompt and at the output."""
    prompt = random_tokens(20, TINY.vocab_size)
    is_token = [position % 2 == 1 for position in range(20)]
    request = make_request([*prompt, 5], num_prompt_tokens=20)
    request.embeds = rows_of(tiny, prompt, is_token)
    assert request.seen_prompt_token_ids.tolist() == prompt[1::2]


def test_a_step_without_tokens_only_forgets(tiny: Model) -> None:
    """And a finished request leaves nothing behind."""
    driver = Driver(ModelRunner(tiny))
    ask = Ask("a", [1, 2, 3], SamplingParams(temperature=0.0, prompt_logprobs=1))
    driver.step({"a": ask}, {"a": 2})
    assert not ask.output
    assert repr(driver.runner) == "ModelRunner(llama, 1 requests)"
    driver.finish(ask)
    assert repr(driver.runner) == "ModelRunner(llama, 0 requests)"


def test_a_grammar_leaves_its_request_what_it_allows(tiny: Model) -> None:
    """Wherever the row of that request is; the others have the tokens that they have without it."""
    prompts = {name: random_tokens(5, TINY.vocab_size, seed) for seed, name in enumerate("abc")}

    def step(grammar: GrammarBitmask | None) -> dict[str, list[int]]:
        runner = ModelRunner(tiny)
        runner.initialize_kv_cache(8, 16)
        new = [
            NewRequest(name, prompt, len(prompt), GREEDY, 0, [[block]], 0)
            for block, (name, prompt) in enumerate(prompts.items(), 1)
        ]
        work = SchedulerOutput(new, [], {name: len(prompt) for name, prompt in prompts.items()}, [])
        work.grammar_bitmask = grammar
        return runner.execute(work).sampled_token_ids

    bits = np.zeros((2, TINY.vocab_size // 32), np.int32)
    bits[0, 4], bits[1, 0] = -(1 << 31), 1 << 7
    free = step(None)
    assert step(GrammarBitmask(["c", "a"], bits.tobytes())) == {"a": [7], "b": free["b"], "c": [159]}
