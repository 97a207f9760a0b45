"""What the runner keeps of a request."""

from core.model.request_state import IntList
from tests.core.model.forward import make_request


def test_an_int_list_grows() -> None:
    """One by one and by many, from nothing too."""
    numbers, expected = IntList([]), []
    for step in range(40):
        numbers.extend(range(step))
        expected += range(step)
    assert numbers.array.tolist() == expected
    assert len(numbers) == len(expected)


def test_output_is_what_follows_the_prompt() -> None:
    """Also of a request that was preempted and brings its output along."""
    fresh, resumed = make_request([1, 2, 3]), make_request([1, 2, 3, 4, 5], 3)
    assert (fresh.num_output_tokens, fresh.is_resumed) == (0, False)
    assert (resumed.output_token_ids.tolist(), resumed.is_resumed) == ([4, 5], True)
    assert repr(resumed) == "RequestState('a', 0/5 tokens, 0 blocks)"
