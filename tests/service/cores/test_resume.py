"""What another core is sent of a request that has begun, whichever it is."""

from typing import Any

import msgspec
import numpy as np
import pytest

from core.wire.messages import EngineCoreRequest
from core.wire.pooling_params import PoolingParams
from core.wire.resume import Resume, resume_of
from core.wire.sampling_params import RepetitionDetection, SamplingParams, StructuredOutputs
from core.wire.tensor import Tensor
from service.cores.resume import NotResumableError, resumed_request
from tests.service.fake_core import READY

OURS = msgspec.structs.replace(READY, resume_key="a")
GREEDY = SamplingParams(
    temperature=0.0, max_tokens=10, min_tokens=3, prompt_logprobs=1, logprobs=2, logit_bias={1: 2.0}
)


def a_request(params: SamplingParams | None = GREEDY, **fields: Any) -> EngineCoreRequest:
    values: dict[str, Any] = {"prompt_token_ids": [1, 2, 3], "pooling_params": None} | fields
    others = {"mm_features": None, "lora_request": None, "cache_salt": "s", "data_parallel_rank": None}
    return EngineCoreRequest(request_id="r", sampling_params=params, arrival_time=5.0, priority=2, **others, **values)


def test_a_core_of_ours_is_told_where_it_was() -> None:
    """The prompt stays what it is, and so does all that the client asked for."""
    params = SamplingParams(seed=1, presence_penalty=1.0, structured_outputs=StructuredOutputs(regex="a*"))
    request = a_request(params)
    resumed = resumed_request(request, [4, 5], "r~1", OURS, OURS, may_differ=False)
    assert resumed.sampling_params is not None
    assert resume_of(resumed.sampling_params) == Resume([4, 5], "r")
    resumed.sampling_params.extra_args = None
    assert resumed == msgspec.structs.replace(request, request_id="r~1")
    assert request.sampling_params == params, "the original is left as it was"


def test_a_text_to_embed_is_sent_again() -> None:
    """It has one output, which is its last."""
    request = a_request(None, pooling_params=PoolingParams())
    for core in (READY, OURS):
        resumed = resumed_request(request, [], "r~1", core, core, may_differ=False)
        assert resumed == msgspec.structs.replace(request, request_id="r~1")


def test_what_had_not_begun_goes_anywhere() -> None:
    """A genuine core starts with it; one of ours draws as the first would have."""
    request = a_request(SamplingParams(temperature=1.0))
    other = msgspec.structs.replace(OURS, resume_key="b")
    assert (
        resumed_request(request, [], "r~1", READY, READY, may_differ=False).sampling_params == request.sampling_params
    )
    told = resume_of(resumed_request(request, [], "r~1", OURS, other, may_differ=False).sampling_params)
    assert told == Resume([], "r")


def test_a_genuine_core_takes_the_output_for_prompt() -> None:
    """What is left of a greedy request is exact: it does not count from where the prompt ends."""
    resumed = resumed_request(a_request(), [4, 5], "r~1", READY, READY, may_differ=False)
    assert resumed.prompt_token_ids == [1, 2, 3, 4, 5]
    assert resumed.sampling_params == msgspec.structs.replace(GREEDY, max_tokens=8, min_tokens=1, prompt_logprobs=None)
    endless = a_request(SamplingParams(temperature=0.0, max_tokens=None))
    again = resumed_request(endless, [4], "r~1", READY, READY, may_differ=False).sampling_params
    assert again == endless.sampling_params


EMBEDS = {"prompt_token_ids": None, "prompt_embeds": Tensor(np.zeros((3, 2), np.float32))}
ROUGH: dict[str, tuple[SamplingParams, str]] = {
    "random": (SamplingParams(temperature=0.5), "drawn at random"),
    "presence": (SamplingParams(temperature=0, presence_penalty=0.1), "presence_penalty counts"),
    "frequency": (SamplingParams(temperature=0, frequency_penalty=0.1), "frequency_penalty counts"),
    "repetition": (SamplingParams(temperature=0, repetition_penalty=1.1), "repetition_penalty counts"),
    "bad words": (SamplingParams(temperature=0, bad_words_token_ids=[[1, 2]]), "bad_words counts"),
    "patterns": (
        SamplingParams(temperature=0, repetition_detection=RepetitionDetection(2, 1, 2)),
        "repetition_detection",
    ),
    "thoughts": (SamplingParams(temperature=0, thinking_token_budget=7), "thinking_token_budget counts"),
}


@pytest.mark.parametrize(("params", "why"), ROUGH.values(), ids=ROUGH)
def test_what_a_genuine_core_would_give_other_tokens(params: SamplingParams, why: str) -> None:
    """Goes on only if its client takes them."""
    with pytest.raises(NotResumableError, match=why):
        resumed_request(a_request(params), [4], "r~1", READY, READY, may_differ=False)
    assert resumed_request(a_request(params), [4], "r~1", READY, READY, may_differ=True).prompt_token_ids == [
        1,
        2,
        3,
        4,
    ]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (a_request(SamplingParams(temperature=0, structured_outputs=StructuredOutputs(regex="a"))), "has a form"),
        (a_request(GREEDY, **EMBEDS), "made of embeddings"),
    ],
)
def test_what_a_genuine_core_cannot_go_on_with(request_: EngineCoreRequest, why: str) -> None:
    """Whatever its client allows: it would be wrong, not only another."""
    for may_differ in (False, True):
        with pytest.raises(NotResumableError, match=why):
            resumed_request(request_, [4], "r~1", READY, READY, may_differ=may_differ)
    assert resumed_request(request_, [4], "r~1", OURS, OURS, may_differ=False).request_id == "r~1"


def test_a_core_of_another_model() -> None:
    """Goes on with nothing that began, as far as what it says of itself tells, unless the client takes that too."""
    other = msgspec.structs.replace(OURS, resume_key="b")
    longer = msgspec.structs.replace(READY, max_model_len=2048)
    with pytest.raises(NotResumableError, match="not like the one"):
        resumed_request(a_request(), [4], "r~1", READY, longer, may_differ=False)
    for core in (other, longer):
        with pytest.raises(NotResumableError, match="another model"):
            resumed_request(a_request(), [4], "r~1", OURS, core, may_differ=False)
    assert resumed_request(a_request(), [4], "r~1", OURS, other, may_differ=True).request_id == "r~1"
