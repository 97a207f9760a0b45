"""What a request carries that another core began, and what of it is refused."""

import msgspec
import pytest

from core.wire.resume import RESUME_ARG, Resume, find_resume_violations, resume_of, resuming
from core.wire.sampling_params import SamplingParams

RESUME = Resume([4, 5], "first")


def test_there_and_back_over_the_wire() -> None:
    """Beside what else there is; the original is left as it was."""
    params = SamplingParams(extra_args={"mine": 1}, seed=7)
    resumed = msgspec.msgpack.decode(msgspec.msgpack.encode(resuming(params, RESUME)), type=SamplingParams)
    assert resume_of(resumed) == RESUME
    assert resumed.extra_args is not None
    assert (resumed.extra_args["mine"], resumed.seed) == (1, 7)
    assert params.extra_args == {"mine": 1}


def test_nothing_is_told() -> None:
    """By most requests."""
    for params in (None, SamplingParams(), SamplingParams(extra_args={"mine": 1})):
        assert resume_of(params) is None
    assert not list(find_resume_violations(SamplingParams(), 3, 100, 50))


@pytest.mark.parametrize("told", [1, [], {"output_token_ids": [1]}, {"output_token_ids": ["1"], "request_id": "r"}])
def test_what_is_none_is_refused_by_name(told: object) -> None:
    """Whoever sends it."""
    (violation,) = find_resume_violations(SamplingParams(extra_args={RESUME_ARG: told}), 3, 100, 50)
    assert violation.field == "extra_args"
    assert RESUME_ARG in violation.description


@pytest.mark.parametrize(
    ("token_ids", "max_tokens", "max_num_tokens", "refused"),
    [
        ([], 1, 4, None),
        ([0, 99], 3, 50, None),
        ([0, 100], 3, 50, r"must be in \[0, 99\]"),
        ([-1], 3, 50, r"must be in \[0, 99\]"),
        ([1, 2, 3], 3, 50, "fewer than the 3 .* got 3"),
        ([1, 2, 3], None, 6, "fewer than the 3 .* got 3"),
        ([1, 2], None, 6, None),
    ],
)
def test_bounds(token_ids: list[int], max_tokens: int | None, max_num_tokens: int, refused: str | None) -> None:
    """Tokens of the vocabulary, and fewer than there is room for: else there would be nothing to go on with."""
    params = resuming(SamplingParams(max_tokens=max_tokens), Resume(token_ids, "r"))
    violations = list(find_resume_violations(params, 3, 100, max_num_tokens))
    assert [violation.field for violation in violations] == ["output_token_ids"] * (refused is not None)
    if refused is not None:
        with pytest.raises(ValueError, match=refused):
            raise ValueError(violations[0].description)
