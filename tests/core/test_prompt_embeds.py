"""Prompts given as rows: what is refused, and that they run as the tokens they stand for."""

from typing import Any

import numpy as np
import pytest

from core.engine import EngineCore
from core.executor.fake import fake_embed
from core.prompt_embeds import PLACEHOLDER_TOKEN_ID, PromptEmbeds, prompt_tokens
from core.request_limits import RequestError, check_request
from core.wire.codec import Decoder, Encoder
from core.wire.messages import EngineCoreRequest
from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor
from tests.core.builders import (
    LIMITS,
    VOCAB_SIZE,
    add,
    expected_tokens,
    make_engine,
    make_message,
    run_to_end,
    tokens_of,
)

PROMPT = list(range(100, 121))
MASK = [position % 3 == 0 for position in range(len(PROMPT))]


def rows(*shape: int, dtype: Any = np.float32) -> Tensor:
    return Tensor(np.zeros(shape, dtype))


def with_value(value: float, dtype: Any = np.float32) -> Tensor:
    tensor = rows(2, 4, dtype=dtype)
    tensor.array[1, 2] = value
    return tensor


def bfloat16(bits: int) -> Tensor:
    return Tensor(with_value(bits, np.uint16).array, "bfloat16")


def message_of(request_id: str, is_token: list[bool] | None = None, **params: Any) -> EngineCoreRequest:
    """PROMPT as rows, but for the positions that ``is_token`` names; sent and received."""
    embeds, token_ids = fake_embed(PROMPT), None
    if is_token is not None:
        embeds[is_token] = 0
        token_ids = [token if known else 999_999 for token, known in zip(PROMPT, is_token, strict=True)]
    message = make_message(
        request_id,
        params=SamplingParams(**params),
        prompt_token_ids=token_ids,
        prompt_embeds=Tensor(embeds),
        prompt_is_token_ids=is_token,
    )
    return Decoder(EngineCoreRequest).decode(Encoder().encode(message))


def add_message(engine: EngineCore, message: EngineCoreRequest) -> None:
    engine.add_request(engine.preprocess_add_request(message))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompt_embeds": rows(2)}, ["prompt_embeds must have shape [num_tokens, 4]", "got [2]"]),
        ({"prompt_embeds": rows(2, 5)}, ["shape [num_tokens, 4]", "got [2, 5]"]),
        ({"prompt_embeds": rows(0, 4)}, ["at least one token", "got [0, 4]"]),
        ({"prompt_embeds": rows(1, 2, 4)}, ["got [1, 2, 4]"]),
        ({"prompt_embeds": rows(2, 4, dtype=np.float64)}, ["dtype float32, bfloat16, float16, got float64"]),
        ({"prompt_embeds": rows(2, 4, dtype=np.int32)}, ["got int32"]),
        ({"prompt_embeds": with_value(np.nan)}, ["finite", "position 1, column 2"]),
        ({"prompt_embeds": with_value(-np.inf)}, ["finite", "position 1, column 2"]),
        ({"prompt_embeds": with_value(np.inf, np.float16)}, ["finite", "position 1, column 2"]),
        ({"prompt_embeds": bfloat16(0x7F80)}, ["finite", "position 1, column 2"]),
        ({"prompt_embeds": bfloat16(0xFFC0)}, ["finite", "position 1, column 2"]),
        ({"prompt_embeds": rows(64, 4)}, ["prompt_embeds must hold fewer tokens than max_model_len (64)", "got 64"]),
        ({"prompt_embeds": rows(49, 4)}, ["prompt_embeds must fit the KV cache of 48 tokens, got 49"]),
        ({"prompt_embeds": rows(2, 4), "prompt_token_ids": [1, 2]}, ["prompt_is_token_ids must have an element"]),
        (
            {"prompt_embeds": rows(2, 4), "prompt_is_token_ids": [True, False]},
            ["prompt_token_ids must have an element for each of the 2 rows"],
        ),
        (
            {"prompt_embeds": rows(2, 4), "prompt_token_ids": [1], "prompt_is_token_ids": [True] * 3},
            ["prompt_token_ids must", "got 1", "prompt_is_token_ids must", "got 3"],
        ),
        (
            {"prompt_embeds": rows(2, 4), "prompt_token_ids": [5, 1000], "prompt_is_token_ids": [False, True]},
            ["prompt_token_ids must be in [0, 999], got 1000 at position 1"],
        ),
        ({"prompt_token_ids": [1], "prompt_is_token_ids": [True]}, ["prompt_is_token_ids goes with prompt_embeds"]),
        (
            {"prompt_embeds": rows(2, 4), "sampling_params": SamplingParams(prompt_logprobs=0)},
            ["prompt_logprobs must not be given with prompt_embeds"],
        ),
    ],
)
def test_a_bad_prompt_of_rows_is_refused(fields: dict[str, Any], words: list[str]) -> None:
    """Every error names the field, the value and the bound."""
    with pytest.raises(RequestError) as caught:
        check_request(make_message(**({"prompt_token_ids": None} | fields)), LIMITS)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("tensor", [with_value(3e38), with_value(65504, np.float16), bfloat16(0x7F7F)])
def test_the_largest_finite_numbers_are_taken(tensor: Tensor) -> None:
    """Of each type."""
    check_request(make_message(prompt_token_ids=None, prompt_embeds=tensor), LIMITS)


def test_a_token_id_where_a_row_is_the_input_is_not_looked_at() -> None:
    """It may be outside the vocabulary, as some front ends' markers are; a placeholder takes its place."""
    message = make_message(
        prompt_token_ids=[7, VOCAB_SIZE + 5], prompt_embeds=rows(2, 4), prompt_is_token_ids=[True, False]
    )
    check_request(message, LIMITS)
    assert prompt_tokens(message) == [7, PLACEHOLDER_TOKEN_ID]


def test_a_prompt_of_tokens_has_no_embeds() -> None:
    """Nothing changes for it."""
    assert PromptEmbeds.of(make_message()) is None


@pytest.mark.parametrize("is_token", [None, MASK], ids=["rows", "rows and tokens"])
@pytest.mark.parametrize("budget", [64, 8], ids=["whole", "in chunks"])
def test_rows_give_the_tokens_of_the_tokens_they_stand_for(is_token: list[bool] | None, budget: int) -> None:
    """Beside prompts of tokens, with a cold and a warm cache; their counts are those of a prompt of tokens."""
    engine = make_engine(max_num_batched_tokens=budget)
    expected = expected_tokens(PROMPT, 8)
    for num_cached in (0, 20):
        add(engine, "tokens", [1, *PROMPT], max_tokens=8)
        add_message(engine, message_of("rows", is_token, max_tokens=8))
        received = run_to_end(engine)
        assert tokens_of(received["rows"]) == expected
        assert tokens_of(received["tokens"]) == expected_tokens([1, *PROMPT], 8)
        stats = received["rows"][0].prefill_stats
        assert stats is not None
        assert (stats.num_prompt_tokens, stats.num_cached_tokens) == (len(PROMPT), num_cached)


def test_rows_survive_preemption() -> None:
    """Three requests in a cache for two: each is computed again from the rows that were kept."""
    engine = make_engine(num_blocks=20)
    for name in ("a", "b", "c"):
        add_message(engine, message_of(name, MASK if name == "b" else None, max_tokens=24))
    received = run_to_end(engine)
    assert engine.scheduler.num_preemptions > 0
    assert [tokens_of(received[name]) for name in ("a", "b", "c")] == [expected_tokens(PROMPT, 24)] * 3


def test_rows_and_tokens_share_no_block_but_those_of_tokens_alone() -> None:
    """Rows that are the placeholder's own embedding are rows still; a head of tokens is shared."""
    engine = make_engine()
    add(engine, "tokens", [PLACEHOLDER_TOKEN_ID] * 9, max_tokens=1)
    run_to_end(engine)
    fields: dict[str, Any] = {"params": SamplingParams(max_tokens=1), "prompt_embeds": rows(9, 4)}
    add_message(engine, make_message("rows", prompt_token_ids=None, **fields))
    mask = [True] * 4 + [False] * 5
    mixed = make_message("mixed", prompt_token_ids=[0] * 9, prompt_is_token_ids=mask, **fields)
    add_message(engine, mixed)
    received = run_to_end(engine)
    stats = [received[name][0].prefill_stats for name in ("rows", "mixed")]
    assert [found.num_cached_tokens for found in stats if found is not None] == [0, 4]
