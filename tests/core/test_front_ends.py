"""What the core knows of its front ends."""

from core.front_ends import FrontEnds
from core.wire.version import WireVersion
from tests.core.wire.recorded import recording

OF_0_25, OF_0_33 = (recording(name).frames[0] for name in ("py_add_chat_stream", "rs33_add"))


def test_each_is_known_by_its_first_request_that_tells() -> None:
    """Requests tell the version of the front end they come from; what it said first stands."""
    front_ends = FrontEnds(3)
    assert len(front_ends) == 3
    for client_index, document in [(1, recording("own_add_short").frames[0]), (1, OF_0_33), (0, OF_0_25), (1, OF_0_25)]:
        front_ends.hear_request(client_index, document)
    assert [front_ends.version_of(i) for i in range(3)] == [WireVersion.V0_25, WireVersion.V0_33, None]


def test_a_version_that_is_given_stands() -> None:
    """The operator knows better."""
    front_ends = FrontEnds(1, WireVersion.V0_33)
    front_ends.hear_request(0, OF_0_25)
    assert front_ends.version_of(0) is WireVersion.V0_33
