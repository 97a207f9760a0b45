"""Tokens that requests name, put together for a batch."""

from core.model.request_state import RequestState
from core.model.sampling.rows import Row, Rows
from core.model.sampling.token_lists import TokenLists
from core.wire.sampling_params import SamplingParams
from tests.core.model.forward import make_request


def biased(request_id: str, bias: dict[int, float] | None) -> RequestState:
    return make_request(request_id=request_id, params=SamplingParams(logit_bias=bias))


def rows_of(*requests: RequestState) -> Rows:
    return Rows([Row(request, 1) for request in requests])


def test_lists_follow_each_other_by_row_and_are_read_once() -> None:
    """A request with several rows has its list in each; one without a list has none; who stays is not read again."""
    read: list[str] = []

    def bias_of(request: RequestState) -> dict[int, float]:
        read.append(request.request_id)
        return request.sampling_params.logit_bias or {}

    a, b, c = biased("a", {5: 1.0, 3: -2.0}), biased("b", None), biased("c", {9: 0.5})
    lists = TokenLists(bias_of)
    named = lists.arrange(rows_of(b, a, a))
    assert named is not None
    assert [part.tolist() for part in named] == [[1, 1, 2, 2], [5, 3, 5, 3], [1.0, -2.0, 1.0, -2.0]]
    named = lists.arrange(rows_of(c, a))
    assert named is not None
    assert [part.tolist() for part in named] == [[0, 1, 1], [9, 5, 3], [0.5, 1.0, -2.0]]
    assert read == ["b", "a", "c"]
    assert lists.arrange(rows_of(b)) is None
    assert lists.arrange(rows_of()) is None
