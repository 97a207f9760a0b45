"""A step: what the executor is told, and for whom its result still matters."""

import pytest

from core.request import Request, RequestStatus
from core.step import Step
from tests.core.builders import make_request


def make_running(num_tokens: int = 5, max_num_tokens: int = 64) -> Request:
    request = make_request(prompt=range(num_tokens), max_num_tokens=max_num_tokens, max_tokens=None)
    request.status = RequestStatus.RUNNING
    return request


def test_a_step_gives_what_is_due_within_its_budget() -> None:
    """3 of 5 prompt tokens, then the other 2; then one for each token that is expected, though it is not known."""
    request = make_running()
    counts = []
    for budget in (3, 100, 100, 100):
        step = Step(budget)
        step.go_on(request, min(request.num_due_tokens, step.budget), [])
        counts.append(step.work.num_scheduled_tokens["r"])
        assert step.budget == budget - counts[-1]
    assert counts == [3, 2, 1, 1]
    assert (request.num_scheduled_tokens, request.num_computed_tokens, request.num_output_placeholders) == (7, 0, 3)


def test_nothing_is_due_once_the_end_is_in_flight() -> None:
    """5 of at most 7 tokens are known: two steps give the others, whatever they are."""
    request = make_running(max_num_tokens=7)
    for expected in (5, 1, 0):
        assert request.num_due_tokens == expected
        Step(100).go_on(request, expected, [])


def test_a_request_is_told_of_with_all_it_needs() -> None:
    """Its tokens are copied: the step may run while the request grows."""
    request = make_running()
    step = Step(100)
    step.begin(request)
    request.token_ids.append(9)
    [new] = step.work.new_requests
    assert (new.token_ids, new.num_prompt_tokens, new.num_computed_tokens) == ([0, 1, 2, 3, 4], 5, 0)
    assert step.work.num_scheduled_tokens == {"r": 5}


@pytest.mark.parametrize("change", ["nothing", "finished", "preempted", "preempted and running again"])
def test_a_share_is_stale_when_its_request_has_ended_or_lost_its_blocks(change: str) -> None:
    """One that runs again is computed anew: an earlier step's token must not be added to it."""
    request = make_running()
    step = Step(100)
    step.begin(request)
    if change == "finished":
        request.status = RequestStatus.FINISHED
    elif change.startswith("preempted"):
        request.num_preemptions += 1
        request.status = RequestStatus.RUNNING if change.endswith("again") else RequestStatus.PREEMPTED
    assert [share.is_stale for share in step.shares] == [change != "nothing"]


def test_a_draft_joins_what_a_step_computes_of_a_known_request() -> None:
    """Its tokens count, its blocks follow those that the request gained anyway, and it costs budget."""
    first, second, new = (make_running() for _ in range(3))
    for name, request in (("a", first), ("b", second), ("c", new)):
        request.request_id = name
    step = Step(20)
    step.go_on(first, 5, [[3]])
    step.go_on(second, 5, [])
    step.begin(new)
    step.add_draft(0, [7, 8], [[4]])
    step.add_draft(1, [9], [])
    assert step.work.draft_token_ids == {"a": [7, 8], "b": [9]}
    assert step.work.num_scheduled_tokens == {"a": 7, "b": 6, "c": 5}
    assert [cached.new_block_ids for cached in step.work.cached_requests] == [[[3, 4]], []]
    assert [(share.num_tokens, share.num_draft_tokens) for share in step.shares] == [(7, 2), (6, 1), (5, 0)]
    assert [share.request for share in step.known_shares] == [first, second]
    assert (step.budget, first.num_scheduled_tokens) == (2, 7)
