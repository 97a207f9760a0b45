"""The fake executor: deterministic, and strict about everything a scheduler can get wrong."""

from typing import Any

import pytest

from core.executor.fake import FakeExecutor, fake_next_token
from core.executor.fake_request import FakeExecutorError
from core.executor.interface import CachedRequest, ModelRunnerOutput, NewRequest, SchedulerOutput
from core.wire.sampling_params import SamplingParams

PROMPT = [1, 2, 3, 4, 5]
VOCAB_SIZE = 1000


def make_executor(**options: Any) -> FakeExecutor:
    executor = FakeExecutor(**options)
    executor.initialize_kv_cache(num_blocks=9, block_size=4)
    return executor


def new(request_id: str = "r", block_ids: tuple[int, ...] = (1, 2), computed: int = 0, **params: Any) -> NewRequest:
    return NewRequest(request_id, PROMPT.copy(), len(PROMPT), SamplingParams(**params), 0, [list(block_ids)], computed)


def run(
    executor: FakeExecutor, *requests: NewRequest | CachedRequest, num_tokens: int = 5, forget: tuple[str, ...] = ()
) -> ModelRunnerOutput:
    news = [request for request in requests if isinstance(request, NewRequest)]
    known = [request for request in requests if isinstance(request, CachedRequest)]
    scheduled = {request.request_id: num_tokens for request in (*known, *news)}
    return executor.execute_model(SchedulerOutput(news, known, scheduled, list(forget))).result()


def test_the_next_token_follows_from_all_tokens() -> None:
    """Prompt, then its own tokens: each the function of everything before it."""
    executor = make_executor()
    first = fake_next_token(PROMPT, VOCAB_SIZE)
    assert run(executor, new()).sampled_token_ids == {"r": [first]}
    second = fake_next_token([*PROMPT, first], VOCAB_SIZE)
    assert run(executor, CachedRequest("r", [], 5), num_tokens=1).sampled_token_ids == {"r": [second]}


def test_an_incomplete_prefill_gives_no_token() -> None:
    """Three of five tokens: nothing; the rest: the same token as at once."""
    executor = make_executor()
    assert run(executor, new(), num_tokens=3).sampled_token_ids == {}
    assert (
        run(executor, CachedRequest("r", [], 3), num_tokens=2).sampled_token_ids
        == run(make_executor(), new()).sampled_token_ids
    )


def test_a_prefix_in_another_requests_block_is_used() -> None:
    """The second request computes one token over the first one's block and gets the same answer."""
    executor = make_executor()
    answer = run(executor, new("a")).sampled_token_ids["a"]
    assert run(executor, new("b", (1, 3), computed=4), num_tokens=1).sampled_token_ids["b"] == answer


def test_a_slot_that_was_never_written_is_named() -> None:
    """A prefix claimed from an empty block."""
    with pytest.raises(FakeExecutorError, match="slot 12 at position 0 was never written"):
        run(make_executor(), new("a", (3, 4), computed=4), num_tokens=1)


def test_a_block_given_to_two_requests_is_noticed() -> None:
    """The second writer overwrites the first one's slots; the first fails at its next step."""
    executor = make_executor()
    run(executor, new("a"))
    other = new("b")
    other.token_ids[0] = 9
    run(executor, other)
    with pytest.raises(FakeExecutorError, match=r"a .*slot 4 at position 0 holds another prefix"):
        run(executor, CachedRequest("a", [], 5), num_tokens=1)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (CachedRequest("r", [], 4), "counts 4 computed"),
        (new(), "is new, but is known"),
        (CachedRequest("r", [[0]], 5), "no place for 6 tokens"),
    ],
)
def test_contradictions_are_refused(request_: NewRequest | CachedRequest, words: str) -> None:
    """A wrong count, a request started twice, and the null block."""
    executor = make_executor()
    run(executor, new())
    with pytest.raises(FakeExecutorError, match=words):
        run(executor, request_, num_tokens=1)


def test_too_few_blocks_and_too_many_tokens_are_refused() -> None:
    """Five tokens do not fit one block of four; six tokens are not there."""
    with pytest.raises(FakeExecutorError, match="no place for 5 tokens"):
        run(make_executor(), new(block_ids=(1,)))
    with pytest.raises(FakeExecutorError, match="asked to compute 6 tokens"):
        run(make_executor(), new(), num_tokens=6)


def test_requests_are_forgotten_when_told_and_never_twice() -> None:
    """A finished id makes room for the same id in the same step; an unknown one is an error."""
    executor = make_executor()
    run(executor, new())
    run(executor, new(), forget=("r",))
    assert executor.request_ids == {"r"}
    run(executor, forget=("r",))
    with pytest.raises(FakeExecutorError, match="r is to be forgotten"):
        run(executor, forget=("r",))


def test_tokens_nans_and_failures_can_be_ordered() -> None:
    """Scripted tokens, even impossible ones, NaN, and a step that raises, once each."""
    fail_on = {2: RuntimeError("out of memory")}

    def on_step(number: int) -> None:
        if number in fail_on:
            raise fail_on[number]

    executor = make_executor(scripted_tokens={"a": [-5]}, nan_request_ids={"b"}, on_step=on_step)
    result = run(executor, new("a"), new("b", (3, 4)))
    assert result.sampled_token_ids["a"] == [-5]
    assert list(result.num_nans_in_logits) == ["b"]
    with pytest.raises(RuntimeError, match="out of memory"):
        run(executor)


def test_logprobs_come_when_asked() -> None:
    """The sampled token and k others in one row."""
    result = run(make_executor(), new(logprobs=2))
    assert result.logprobs["r"].token_ids.shape == (1, 3)
    assert result.logprobs["r"].token_ids[0, 0] == result.sampled_token_ids["r"][0]


def test_failure_is_told_once() -> None:
    """Whoever asked is called at the first failure only."""
    calls: list[int] = []
    executor = make_executor()
    executor.on_failure(lambda: calls.append(1))
    executor.fail()
    executor.fail()
    assert calls == [1]
