"""Whatever the wire can carry: a request is refused with a reason, or it runs to its end and disturbs nobody."""

from typing import Any

import torch
from hypothesis import event, given, settings
from hypothesis import strategies as st

from core.executor.interface import NewRequest
from core.model.request_state import RequestState
from core.model.sampling.rows import Row
from core.model.sampling.sampler import Sampler
from core.request_limits import RequestError, check_request
from core.wire.codec import Decoder, Encoder
from core.wire.messages import EngineCoreRequest
from core.wire.sampling_params import RepetitionDetection, SamplingParams
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

NUM_STEPS = 4
NEIGHBOUR = SamplingParams(temperature=0.7, top_k=20, frequency_penalty=0.5, logit_bias={3: 2.0}, seed=5)
REQUEST_DECODER = Decoder(EngineCoreRequest)

any_int = st.sampled_from([-(2**63), -1, 0, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(-3, 2**64 - 1)
any_float = st.sampled_from([1e-320, 1e-50, 1e-7, 1e21, 3e38, 1e300, -1e300]) | st.floats()
token_id = st.integers(0, VOCAB_SIZE - 1)
count = st.integers(0, 8)
# The same few tokens again and again, so that masks meet.
few_ids = st.lists(st.integers(3, 6), min_size=1, max_size=4)
any_ids = st.lists(token_id | any_int, max_size=3)

SANE: dict[str, st.SearchStrategy[Any]] = {
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "repetition_penalty": st.floats(0.5, 2),
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0.1, 1),
    "top_k": count,
    "min_p": st.floats(0, 1),
    "seed": st.integers(-(2**63), 2**64 - 1),
    "stop_token_ids": few_ids,
    "max_tokens": st.none() | st.integers(8, 20),
    "min_tokens": count,
    "logprobs": st.integers(0, 20),
    "prompt_logprobs": st.integers(0, 20),
    "eos_token_id": st.integers(3, 6),
    "all_stop_token_ids": few_ids,
    "logit_bias": st.dictionaries(token_id, st.floats(-100, 100), max_size=4),
    "allowed_token_ids": few_ids,
    "bad_words_token_ids": st.lists(few_ids, max_size=4),
    "repetition_detection": st.builds(RepetitionDetection, st.integers(3, 9), st.integers(0, 3), st.integers(2, 4)),
    "skip_reading_prefix_cache": st.booleans(),
}
STRANGE: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "repetition_penalty", "temperature"), any_float),
    **dict.fromkeys(("top_p", "min_p"), any_float),
    **dict.fromkeys(("top_k", "seed", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs"), any_int),
    **dict.fromkeys(("eos_token_id", "output_kind", "routed_experts_prompt_start"), any_int),
    **dict.fromkeys(("stop_token_ids", "all_stop_token_ids", "allowed_token_ids"), any_ids),
    "logprob_token_ids": st.lists(token_id, max_size=130) | any_ids,
    "thinking_token_budget": any_int,
    "logit_bias": st.dictionaries(token_id | any_int, any_float, max_size=3),
    "bad_words_token_ids": st.lists(any_ids, max_size=3),
    "repetition_detection": st.builds(RepetitionDetection, any_int, any_int, any_int),
    "extra_args": st.dictionaries(st.text(max_size=3), any_int, max_size=2),
    "bad_words": st.lists(st.text(max_size=3), max_size=2),
}
STRANGE_ENVELOPE: dict[str, st.SearchStrategy[Any]] = {
    "prompt": st.lists(token_id, min_size=1, max_size=50) | any_ids,
    "arrival_time": any_float,
    **dict.fromkeys(("priority", "client_index", "current_wave"), any_int),
    "cache_salt": st.text(max_size=3),
    "trace_headers": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    "mm_features": st.just([]),
    "abort_immediately": st.booleans(),
}


def one_of_them(strategies: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from(sorted(strategies)).flatmap(lambda name: st.fixed_dictionaries({name: strategies[name]}))


@st.composite
def received_requests(draw: st.DrawFn) -> EngineCoreRequest:
    """Sane but for one parameter and one other field, as they come out of the decoder."""
    params = draw(st.fixed_dictionaries({}, optional=SANE)) | draw(one_of_them(STRANGE))
    message = make_message(params=SamplingParams(**params), **draw(one_of_them(STRANGE_ENVELOPE)))
    return REQUEST_DECODER.decode(Encoder().encode(message))


def sample(params: list[SamplingParams], prompt: list[int], logits: torch.Tensor) -> list[list[int]]:
    """The tokens that each row gets, of logits [steps, vocab_size] that all rows share."""
    requests = [RequestState(NewRequest(str(i), prompt, len(prompt), p, 7, [], 0)) for i, p in enumerate(params)]
    sampler, rows = Sampler(), []
    for step in logits:
        sampled = sampler.sample(step.repeat(len(params), 1), [Row(r, len(r.token_ids)) for r in requests])
        rows.append(sampled.token_ids)
        for row, (request, token) in enumerate(zip(requests, sampled.token_ids, strict=True)):
            assert 0 <= token < VOCAB_SIZE
            assert _may_choose(request, token) or row in sampled.no_possible_token
            request.token_ids.extend([token])
    return [list(tokens) for tokens in zip(*rows, strict=True)]


def _may_choose(request: RequestState, token: int) -> bool:
    params, output = request.sampling_params, request.output_token_ids.tolist()
    ends_it = token in (params.eos_token_id, *params.all_stop_token_ids, *(params.stop_token_ids or ()))
    return (
        token in (params.allowed_token_ids or [token])
        and not any([*output, token][-len(word) :] == word for word in params.bad_words_token_ids or ())
        and not (ends_it and len(output) < params.min_tokens)
    )


@settings(max_examples=300)
@given(received_requests(), st.integers(0, 2**31))
def test_an_accepted_request_can_be_sampled(message: EngineCoreRequest, logits_seed: int) -> None:
    """Step after step it gets a token it allows, or is reported; the request beside it gets its own tokens."""
    try:
        params = check_request(message, LIMITS)
    except RequestError:
        event("refused")
        return
    logits = torch.randn(NUM_STEPS, VOCAB_SIZE, generator=torch.Generator().manual_seed(logits_seed)) * 5
    prompt = message.prompt_token_ids or []
    [alone] = sample([NEIGHBOUR], prompt, logits)
    _, beside = sample([params, NEIGHBOUR], prompt, logits)
    assert beside == alone


@settings(max_examples=300)
@given(received_requests())
def test_an_accepted_request_runs_to_its_end(message: EngineCoreRequest) -> None:
    """With exactly one final output, which can be sent; the request beside it gets its own tokens."""
    engine = make_engine()
    add(engine, "neighbour", max_tokens=5)
    try:
        engine.add_request(engine.preprocess_add_request(message))
    except RequestError:
        event("refused")
    received = run_to_end(engine)
    assert tokens_of(received.pop("neighbour")) == expected_tokens([1, 2, 3], 5)
    for outputs in received.values():
        assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
        Encoder().encode(outputs)
