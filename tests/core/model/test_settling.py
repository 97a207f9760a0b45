"""Which of a step's tokens are a request's."""

from collections.abc import Sequence

import numpy as np
import pytest

from core.executor.interface import ModelRunnerOutput
from core.model.request_state import RequestState
from core.model.sampling.rows import Row
from core.model.sampling.sampler import Sampled
from core.model.settling import settle
from core.wire.messages import LogprobsLists
from tests.core.model.forward import make_request


def drafted(draft: Sequence[int] = ()) -> RequestState:
    request = make_request([1, 2, 3])
    request.add_draft(draft)
    return request


def settle_one(
    draft: Sequence[int], chosen: Sequence[int], num_nans: Sequence[int] = (), impossible: Sequence[int] = ()
) -> tuple[list[int], ModelRunnerOutput]:
    """The tokens of a request of three that has ``draft``, and what goes out."""
    request = drafted(draft)
    rows = [Row(request, 3 + i) for i in range(len(chosen))]
    logprobs = {row: LogprobsLists(*(np.array([[row]]),) * 2, np.array([row])) for row in range(len(rows))}
    output = settle(rows, Sampled([*chosen], logprobs, dict.fromkeys(num_nans, 7), [*impossible]))
    assert request.num_draft_tokens == 0
    assert output.logprobs["a"].ranks.tolist() == list(range(len(output.sampled_token_ids["a"])))
    return request.token_ids.array.tolist(), output


@pytest.mark.parametrize(
    ("draft", "chosen", "expected"),
    [
        ([], [4], [4]),
        ([4, 5], [4, 5, 6], [4, 5, 6]),
        ([4, 5], [4, 9, 6], [4, 9]),
        ([4, 5], [9, 5, 6], [9]),
    ],
    ids=["no draft", "all right", "the second wrong", "all wrong"],
)
def test_a_request_gets_its_tokens_up_to_the_first_that_was_not_drafted(
    draft: list[int], chosen: list[int], expected: list[int]
) -> None:
    """They take the draft's place, and their log-probabilities go out with them."""
    token_ids, output = settle_one(draft, chosen)
    assert token_ids == [1, 2, 3, *expected]
    assert output.sampled_token_ids == {"a": expected}


@pytest.mark.parametrize("trouble", ["num_nans", "impossible"])
@pytest.mark.parametrize(
    ("rows", "expected", "is_told"), [([0], [4], True), ([1, 2], [4], False), ([2], [4, 5], False)]
)
def test_a_row_without_a_token_is_reported_when_it_is_the_first(
    trouble: str, rows: list[int], expected: list[int], is_told: bool
) -> None:
    """The tokens before it go out first, and the next step begins with it; what follows a wrong draft is nobody's."""
    token_ids, output = settle_one([4, 5], [4, 5, 6], **{trouble: rows})
    assert token_ids == [1, 2, 3, *expected]
    assert ("a" in output.num_nans_in_logits or "a" in output.no_possible_token) is is_told
    assert settle_one([4, 5], [9, 5, 6], **{trouble: [1, 2]})[1].no_possible_token == set()


def test_every_request_gets_its_own() -> None:
    """With drafts and without, in one step."""
    requests = [drafted(draft) for draft in ([], [5, 6], [7])]
    for name, request in zip("abc", requests, strict=True):
        request.request_id = name
    rows = [Row(request, 3 + i) for request in requests for i in range(request.num_draft_tokens + 1)]
    output = settle(rows, Sampled([4, 5, 8, 9, 7, 1], {}, {3: 2}, []))
    assert output.sampled_token_ids == {"a": [4], "b": [5, 8], "c": [7, 1]}
    assert output.num_nans_in_logits == {}
