"""What the core knows of its front ends."""

from core.front_ends import FIRST_CONNECTION_S, RECONNECTION_S, FrontEnds
from core.wire.version import WireVersion
from tests.core.wire.recorded import recording

OF_0_25, OF_0_33 = (recording(name).frames[0] for name in ("py_add_chat_stream", "rs33_add"))


def test_each_is_known_by_its_first_request_that_tells() -> None:
    """Requests tell the version of the front end they come from; what it said first stands."""
    front_ends = FrontEnds(3, now=0.0)
    assert len(front_ends) == 3
    for client_index, document in [(1, recording("own_add_short").frames[0]), (1, OF_0_33), (0, OF_0_25), (1, OF_0_25)]:
        front_ends.hear_request(client_index, document)
    assert [front_ends.version_of(i) for i in range(3)] == [WireVersion.V0_25, WireVersion.V0_33, None]


def test_a_version_that_is_given_stands() -> None:
    """The operator knows better."""
    front_ends = FrontEnds(1, 0.0, WireVersion.V0_33)
    front_ends.hear_request(0, OF_0_25)
    assert front_ends.version_of(0) is WireVersion.V0_33


def test_nobody_is_lost_who_is_connected() -> None:
    """As long as the connections stand there is nothing to wait for."""
    front_ends = FrontEnds(2, now=100.0)
    for client_index in range(2):
        front_ends.connect(client_index)
    assert front_ends.seconds_to_next_loss(1000.0) is None
    assert front_ends.take_lost(1000.0) == []
    assert not front_ends.all_gone


def test_a_disturbed_connection_is_no_loss() -> None:
    """zmq renews it; only who is not back in time is lost."""
    front_ends = FrontEnds(1, now=0.0)
    front_ends.connect(0)
    front_ends.disconnect(0, now=50.0)
    assert front_ends.seconds_to_next_loss(50.25) == RECONNECTION_S - 0.25
    assert front_ends.take_lost(50.0 + RECONNECTION_S / 2) == []
    front_ends.connect(0)
    assert front_ends.seconds_to_next_loss(51.0) is None
    assert front_ends.take_lost(1000.0) == []


def test_who_is_lost_is_lost_once() -> None:
    """Until it is back, and goes again; all are gone when the last one is."""
    front_ends = FrontEnds(2, now=0.0)
    front_ends.connect(0)
    front_ends.connect(1)
    front_ends.disconnect(1, now=50.0)
    assert front_ends.take_lost(60.0) == [1]
    front_ends.disconnect(1, now=60.0)
    assert (front_ends.take_lost(1000.0), front_ends.is_gone(1), front_ends.all_gone) == ([], True, False)
    front_ends.connect(1)
    assert not front_ends.is_gone(1)
    for client_index in range(2):
        front_ends.disconnect(client_index, now=2000.0)
    assert front_ends.take_lost(2010.0) == [0, 1]
    assert front_ends.all_gone


def test_who_never_comes_is_lost() -> None:
    """A front end that died while the model was loaded never answers the connection."""
    front_ends = FrontEnds(1, now=5.0)
    assert front_ends.seconds_to_next_loss(5.0) == FIRST_CONNECTION_S
    assert front_ends.seconds_to_next_loss(5000.0) == 0.0
    assert front_ends.take_lost(5.0 + FIRST_CONNECTION_S) == [0]
