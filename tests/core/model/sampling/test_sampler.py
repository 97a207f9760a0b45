"""Every sampling feature, in batches in which each request asks for something else."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.request_state import RequestState
from core.model.sampling.logits_processors import TokenMask
from core.model.sampling.rows import Row
from core.model.sampling.sampler import Sampler
from core.wire.sampling_params import SamplingParams
from tests.core.model.forward import make_request
from tests.core.model.sampling.plain_sampler import choose

VOCAB_SIZE = 300


NUM_FREQUENT = 6
"""Token ids of prompts and drafts: few, so that penalties and bad words find some."""
frequent = st.integers(0, NUM_FREQUENT - 1)
any_token = st.integers(0, VOCAB_SIZE - 1)
LIKELY_PARAMS: dict[str, st.SearchStrategy[Any]] = {
    "allowed_token_ids": st.lists(any_token | frequent, min_size=5, max_size=40),
    "bad_words_token_ids": st.lists(st.lists(frequent, min_size=1, max_size=3), min_size=1, max_size=6),
    "min_tokens": st.integers(0, 6),
    "logit_bias": st.dictionaries(any_token | frequent, st.floats(-5, 5), max_size=4),
    "repetition_penalty": st.sampled_from([0.7, 1.3]),
    "frequency_penalty": st.floats(-2, 2),
    "presence_penalty": st.floats(-2, 2),
    "min_p": st.floats(0, 0.3),
    "top_k": st.integers(-1, VOCAB_SIZE + 5),
    "top_p": st.floats(0.3, 1),
    "logprobs": st.integers(-1, 3),
    "temperature": st.sampled_from([0.0, 0.001, 0.5, 1.0, 1.7]),
}


@st.composite
def any_request(draw: st.DrawFn) -> RequestState:
    prompt, output = draw(st.lists(frequent, min_size=1, max_size=8)), draw(st.lists(frequent, max_size=8))
    params = SamplingParams(
        eos_token_id=3,
        stop_token_ids=[4],
        all_stop_token_ids=[3, 4],
        **draw(st.fixed_dictionaries({}, optional=LIKELY_PARAMS)),
    )
    return make_request([*prompt, *output], len(prompt), seed=draw(st.integers(-(2**63), 2**64 - 1)), params=params)


@settings(max_examples=100)
@given(st.data(), st.lists(any_request(), min_size=1, max_size=6), st.integers(0, 2**31))
def test_every_row_is_what_a_plain_sampler_gives_it(
    data: st.DataObject, requests: list[RequestState], seed: int
) -> None:
    """Requests come, go and change places; each has a row for its next token and, with drafts, one behind each.

    The plain sampler is given one token at a time. What is accepted is up to the drafts' maker, and any of it.
    """
    sampler, generator = Sampler(), torch.Generator().manual_seed(seed)
    for _ in range(4):
        present = data.draw(st.lists(st.sampled_from(requests), unique_by=id, min_size=1))
        drafts = [data.draw(st.lists(frequent, max_size=3)) for _ in present]
        lengths = [len(request.token_ids) for request in present]
        rows = [Row(r, n + i) for r, n, d in zip(present, lengths, drafts, strict=True) for i in range(len(d) + 1)]
        logits = torch.randn(len(rows), VOCAB_SIZE, generator=generator) * 3
        expected = []
        for request, draft in zip(present, drafts, strict=True):
            for token_id in [*draft, None]:
                expected.append(choose(logits[len(expected)].numpy(), request))
                if token_id is not None:
                    request.token_ids.extend([token_id])
        sampled = sampler.sample(logits.clone(), rows)
        for row, (token_id, right) in enumerate(zip(sampled.token_ids, expected, strict=True)):
            assert token_id == right or (right is None and row in sampled.no_possible_token)
        for request, length, draft in zip(present, lengths, drafts, strict=True):
            request.token_ids.truncate(length + data.draw(st.integers(0, len(draft))))
            request.token_ids.extend([data.draw(frequent)])


def next_rows(*requests: RequestState) -> list[Row]:
    """One for each request, after all its tokens."""
    return [Row(request, len(request.token_ids)) for request in requests]


def sample_one(logits: list[float], request: RequestState) -> int:
    return Sampler().sample(torch.tensor([logits]), next_rows(request)).token_ids[0]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, 1),
        ({"allowed_token_ids": [0, 2]}, 2),
        ({"logit_bias": {0: 100.0}}, 0),
        ({"logit_bias": {1: -100.0}}, 2),
        ({"bad_words_token_ids": [[1]]}, 2),
        ({"bad_words_token_ids": [[2, 1]]}, 2),
        ({"bad_words_token_ids": [[3, 1]]}, 1),
        ({"bad_words_token_ids": [[3, 3, 2, 1]]}, 1),
        ({"min_tokens": 3, "eos_token_id": 1}, 2),
        ({"min_tokens": 3, "stop_token_ids": [1]}, 2),
        ({"min_tokens": 2, "eos_token_id": 1}, 1),
        ({"presence_penalty": 2.0}, 1),
        ({"frequency_penalty": 2.0, "logit_bias": {2: 2.5}}, 1),
        ({"repetition_penalty": 1.5, "logit_bias": {3: 3.0}}, 1),
    ],
)
def test_one_feature_at_a_time(params: dict[str, Any], expected: int) -> None:
    """Logits 1, 4, 3, 2 after the prompt 3 and the output 2, 2."""
    request = make_request([3, 2, 2], 1, params=SamplingParams(temperature=0.0, **params))
    assert sample_one([1.0, 4.0, 3.0, 2.0], request) == expected


@pytest.mark.parametrize("min_tokens", [0, 1, 3, 4])
def test_min_tokens_ends_while_the_batch_stays_the_same(min_tokens: int) -> None:
    """EOS, biased to be certain, comes exactly after min_tokens others."""
    params = SamplingParams(temperature=0.0, min_tokens=min_tokens, eos_token_id=1, logit_bias={1: 100.0})
    request, sampler, tokens = make_request([0], params=params), Sampler(), []
    for _ in range(5):
        tokens += sampler.sample(torch.tensor([[1.0, 4.0, 3.0]]), next_rows(request)).token_ids
        request.token_ids.extend(tokens[-1:])
    assert tokens == [2] * min_tokens + [1] * (5 - min_tokens)


def test_logprobs_are_of_the_raw_logits_and_ranked() -> None:
    """Whatever bias, penalty or temperature do; the chosen token first, then the best k."""
    logits = torch.tensor([[1.0, 4.0, 3.0, 3.0]] * 4)
    expected = logits[0].log_softmax(0).tolist()
    asks = [0, 2, -1, None]
    biases = [{0: 100.0}, {3: 100.0}, {}, {}]
    requests = [
        make_request([0], request_id=str(i), params=SamplingParams(temperature=0.0, logprobs=k, logit_bias=bias))
        for i, (k, bias) in enumerate(zip(asks, biases, strict=True))
    ]
    sampled = Sampler().sample(logits.clone(), next_rows(*requests))
    assert sampled.token_ids == [0, 3, 1, 1]
    assert set(sampled.logprobs) == {0, 1, 2}
    only, two, every = (sampled.logprobs[row] for row in range(3))
    assert (only.token_ids.tolist(), only.ranks.tolist()) == ([[0]], [4])
    assert two.token_ids[0, :2].tolist() == [3, 1]
    assert two.ranks.tolist() == [2]
    np.testing.assert_allclose(two.logprobs[0], [expected[3], expected[1], expected[2]], rtol=1e-6)
    assert every.token_ids.shape == (1, 5)
    np.testing.assert_allclose(every.logprobs[0], [expected[1], *sorted(expected, reverse=True)], rtol=1e-6)
    assert [part.dtype for part in two[:3]] == [np.int32, np.float32, np.int64]


def test_logprobs_of_named_tokens() -> None:
    """The chosen one, then these in their order, whatever their rank; beside neighbours who name fewer or none."""
    logits = torch.randn(4, VOCAB_SIZE, generator=torch.Generator().manual_seed(0))
    expected = logits.log_softmax(-1)
    asks: list[dict[str, Any]] = [
        {"logprob_token_ids": [9, 7, 9]},
        {"logprobs": 2},
        {"logprob_token_ids": [299]},
        {"logprob_token_ids": [1, 0, 2], "logprobs": 3},
    ]
    requests = [
        make_request([0], request_id=str(i), params=SamplingParams(temperature=0, **ask)) for i, ask in enumerate(asks)
    ]
    sampled = Sampler().sample(logits.clone(), next_rows(*requests))
    for row, columns in ((0, [9, 7, 9]), (2, [299]), (3, [1, 0, 2])):
        scores = sampled.logprobs[row]
        assert scores.token_ids.tolist() == [[sampled.token_ids[row], *columns]]
        np.testing.assert_allclose(scores.logprobs[0], expected[row, scores.token_ids[0]], rtol=1e-6)
        assert scores.ranks.tolist() == [1]
    assert sampled.logprobs[1].token_ids.shape == (1, 3)


def test_of_equally_likely_tokens_the_first_is_chosen() -> None:
    """As ``argmax`` of torch and numpy have it, also when all are masked."""
    logits = torch.zeros(3, 40)
    logits[0, 17] = logits[0, 33] = 2.0
    logits[1, 39] = 1.0
    logits[2] = -torch.inf
    assert Sampler().sample(logits, next_rows(*(make_request() for _ in range(3)))).token_ids == [17, 39, 0]


def test_nan_is_counted_in_its_row_alone() -> None:
    """Infinities and large numbers are no NaN."""
    logits = torch.randn(4, VOCAB_SIZE)
    logits[1, 7] = logits[1, 9] = torch.nan
    logits[2, 3], logits[2, 4] = torch.inf, -torch.inf
    requests = [make_request([0], request_id=str(i), params=SamplingParams(temperature=i / 2)) for i in range(4)]
    assert Sampler().sample(logits, next_rows(*requests)).num_nans == {1: 2}


@pytest.mark.parametrize("temperature", [0.0, 0.8], ids=["greedy", "random"])
@pytest.mark.parametrize(
    "params",
    [
        {"allowed_token_ids": [3], "min_tokens": 2, "eos_token_id": 3},
        {"allowed_token_ids": [3, 4], "bad_words_token_ids": [[3], [4]]},
        {"allowed_token_ids": [3], "stop_token_ids": [3], "min_tokens": 1, "top_p": 0.5, "top_k": 3, "min_p": 0.1},
        {"allowed_token_ids": [3], "bad_words_token_ids": [[3]], "logit_bias": {3: 1e20}, "repetition_penalty": 1e6},
    ],
)
def test_a_row_that_no_token_can_leave_is_reported_alone(params: dict[str, Any], temperature: float) -> None:
    """Whatever masks the last one; the neighbours' tokens are those they get alone."""
    masked = make_request([0], request_id="masked", params=SamplingParams(temperature=temperature, **params))
    others = [
        make_request(
            [0], request_id=name, seed=7, params=SamplingParams(temperature=temperature, allowed_token_ids=[5, 6])
        )
        for name in ("before", "after")
    ]
    logits = torch.randn(3, VOCAB_SIZE, generator=torch.Generator().manual_seed(1))
    alone = [
        Sampler().sample(logits[row : row + 1].clone(), next_rows(other))
        for row, other in zip((0, 2), others, strict=True)
    ]
    sampled = Sampler().sample(logits, next_rows(others[0], masked, others[1]))
    assert sampled.no_possible_token == [1]
    assert sampled.token_ids[::2] == [one.token_ids[0] for one in alone]
    assert not any(one.no_possible_token for one in alone)


def test_a_grammar_leaves_its_rows_the_tokens_of_its_bits() -> None:
    """Other rows are as they were, and log-probabilities are still those of the raw logits."""
    logits = torch.zeros(3, VOCAB_SIZE)
    logits[:, 40], logits[:, 33], logits[:, 31] = 3.0, 2.0, 1.0
    bits = torch.tensor([[1 << 5 | -(1 << 31), 1 << 1], [-1, 0]], dtype=torch.int32)
    requests = [
        make_request([0], request_id=name, params=SamplingParams(temperature=0.0, logprobs=1)) for name in "abc"
    ]
    sampled = Sampler().sample(logits, next_rows(*requests), TokenMask([2, 0], bits))
    assert sampled.token_ids == [31, 40, 33]
    assert sampled.logprobs[2].token_ids.tolist() == [[33, 40]]
    assert not sampled.no_possible_token
