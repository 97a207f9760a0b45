"""What is taken on, and what is told to those for whom there is no room."""

import numpy as np
import pytest

from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor
from service.admission.admission import Admission, AdmissionLimits
from service.embedding import EmbeddingRequest
from service.errors import QueueFull, ResourceExhausted
from service.generation_request import GenerationRequest, StopRules


def tokens(num_tokens: int, n: int = 1) -> GenerationRequest:
    return GenerationRequest("r", [1] * num_tokens, SamplingParams(n=n))


def rows(num_tokens: int, n: int = 1) -> GenerationRequest:
    """Eight bytes a token."""
    return GenerationRequest("r", [], SamplingParams(n=n), prompt_embeds=Tensor(np.zeros((num_tokens, 2), np.float32)))


def test_sequences_are_bounded() -> None:
    """n counts n; more than could ever be is another error than more than can be now."""
    admission = Admission(AdmissionLimits(4, 100, 1000))
    live = tokens(1, n=3)
    admission.admit(live)
    with pytest.raises(QueueFull, match="3 of at most 4 sequences are live, the request asks for 2") as refused:
        admission.admit(tokens(1, n=2))
    assert (refused.value.reason, admission.num_sequences) == ("QUEUE_FULL", 3)
    with pytest.raises(ResourceExhausted, match=r"at most 4 sequences .* the request asks for 5"):
        admission.admit(tokens(1, n=5))
    admission.release(live)
    admission.admit(tokens(1, n=4))


def test_prompt_tokens_are_bounded() -> None:
    """Those of each sequence count, as the core gets the prompt of each; what is refused takes no room."""
    admission = Admission(AdmissionLimits(100, 100, 100))
    live = tokens(20, n=3)
    admission.admit(live)
    with pytest.raises(QueueFull, match="100 tokens together and have 60, those of the request have 42"):
        admission.admit(tokens(21, n=2))
    assert (admission.num_sequences, admission.num_prompt_tokens) == (3, 60)
    with pytest.raises(ResourceExhausted, match="of the request alone have 120") as refused:
        admission.admit(tokens(60, n=2))
    assert refused.value.reason == "TOO_MANY_TOKENS"
    admission.admit(tokens(40))
    admission.release(live)
    assert admission.num_prompt_tokens == 40


def test_token_lists_count_as_prompts_do() -> None:
    """They take as much memory, here and in the core, and are copied for each sequence."""
    admission = Admission(AdmissionLimits(100, 100, 100))
    params = SamplingParams(n=2, allowed_token_ids=[1] * 10, bad_words_token_ids=[[1, 2], [3]], logit_bias={1: 0.5})
    live = GenerationRequest("r", [1] * 4, params, StopRules(token_ids=frozenset([5])))
    admission.admit(live)
    assert admission.num_prompt_tokens == 2 * (4 + 10 + 3 + 3 + 1)
    with pytest.raises(QueueFull, match="100 tokens together and have 42, those of the request have 60"):
        admission.admit(tokens(60))
    admission.release(live)
    assert admission.num_prompt_tokens == 0


def test_embeddings_of_live_requests_are_bounded() -> None:
    """Together, each sequence counting; one that could never fit is told so; who sends tokens does not notice."""
    admission = Admission(AdmissionLimits(8, 100, 1000, max_embeds_bytes=80))
    with pytest.raises(ResourceExhausted, match="the request alone has 96"):
        admission.admit(rows(4, n=3))
    live = rows(6)
    admission.admit(live)
    with pytest.raises(QueueFull, match="hold 48, the request has 40"):
        admission.admit(rows(5))
    admission.admit(rows(4))
    admission.admit(tokens(3))
    admission.release(live)
    admission.admit(rows(6))


def test_prompt_that_the_kv_cache_cannot_hold() -> None:
    """Is refused for good, unless nothing of it stays there."""
    admission = Admission(AdmissionLimits(8, 100, 1000))
    with pytest.raises(ResourceExhausted, match="holds 100 tokens, the prompt has 101") as refused:
        admission.admit(tokens(101))
    assert refused.value.reason == "PROMPT_EXCEEDS_KV_CACHE"
    admission.admit(EmbeddingRequest("e", [1] * 101))


def test_refused_are_told_when_to_come_again() -> None:
    """Whatever there is too much of, and before anything is known of how fast it ends."""
    admission = Admission(AdmissionLimits(2, 100, 60, max_embeds_bytes=80))
    admission.admit(rows(10))
    for load in (tokens(51), rows(1), tokens(1, n=2)):
        with pytest.raises(QueueFull) as refused:
            admission.admit(load)
        assert 0.1 <= refused.value.retry_after_s <= 60


def busy_admission(num_waiting: int, num_ended: int = 8) -> Admission:
    """Of late so many have ended, all in the same moment, which counts as a second."""
    admission = Admission(AdmissionLimits(10_000, 100, 1_000_000), lambda: num_waiting)
    admission.admit(tokens(1))
    for _ in range(num_ended):
        admission.admit(tokens(1))
        admission.release(tokens(1))
    return admission


def test_deadline_that_cannot_be_met() -> None:
    """Some 100 s of work wait: a call that has 10 s is refused now, and told when to come again."""
    with pytest.raises(QueueFull, match=r"800 sequences wait, .* the call has 10.0 s left") as refused:
        busy_admission(800).admit(tokens(1), 10)
    assert refused.value.reason == "DEADLINE_HOPELESS"
    assert 0.1 <= refused.value.retry_after_s <= 60


@pytest.mark.parametrize(
    ("admission", "request_of_call", "time_remaining_s"),
    [
        (busy_admission(0), tokens(1), 0.0),
        (busy_admission(800, num_ended=7), tokens(1), 0.1),
        (busy_admission(800), tokens(1), None),
        (busy_admission(8), tokens(1), 60.0),
        (busy_admission(800), GenerationRequest("r", [1], SamplingParams(), priority=-1), 0.1),
    ],
    ids=["nobody waits", "too little is known", "no deadline", "it may be met", "it goes before others"],
)
def test_deadline_that_may_be_met(
    admission: Admission, request_of_call: GenerationRequest, time_remaining_s: float | None
) -> None:
    """Only what is clear is refused."""
    admission.admit(request_of_call, time_remaining_s)
