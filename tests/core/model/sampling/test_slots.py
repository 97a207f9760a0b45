"""Lines of a table, for requests that come and go."""

import torch

from core.model.sampling.slots import Slots, grow_lines
from tests.core.model.forward import make_request


def test_a_request_keeps_its_slot_while_it_stays() -> None:
    """Whatever the order and the others; a slot that came free goes to the next newcomer."""
    a, b, c, d = (make_request(request_id=name) for name in "abcd")
    slots = Slots()
    assert slots.arrange([a, b, c]) == [a, b, c]
    before = {request: slots[request] for request in (a, c)}
    freed = slots[b]
    assert slots.arrange([c, a]) == []
    assert slots.arrange([d, c, c, a]) == [d]
    assert {request: slots[request] for request in (a, c)} == before
    assert slots[d] == freed
    assert len(slots) == 3


def test_no_two_requests_share_a_slot() -> None:
    """However many come at once after others have gone."""
    slots, requests = Slots(), [make_request(request_id=str(i)) for i in range(9)]
    for present in (requests[:4], requests[2:3], requests[1:9], [], requests):
        slots.arrange(present)
        taken = {slots[request] for request in present}
        assert len(taken) == len(present)
        assert all(slot < len(slots) for slot in taken)


def test_a_table_grows_with_what_it_holds() -> None:
    """By half of it at least, so that lines are seldom copied; and not at all while there is room."""
    table = torch.arange(6.0).view(3, 2)
    larger = grow_lines(table, 4)
    assert torch.equal(larger[:3], table)
    assert larger.shape == (6, 2)
    assert grow_lines(larger, 6) is larger
    assert grow_lines(larger, 20).shape == (20, 2)
