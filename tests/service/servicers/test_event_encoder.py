"""Events as bytes: what protobuf itself would write."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.wire.messages import FinishReason, LogprobsLists
from service.events import Delta, Event, Finished, Started
from service.sequence import SequenceFinish
from service.servicers.event_encoder import EventEncoder
from service.servicers.responses import to_stream_response

_IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
_TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=200)


@given(_IDS, st.integers(0, 2**31 - 1), _TEXTS, _TOKENS)
def test_delta_is_what_its_message_serializes_to(request_id: str, index: int, text: str, token_ids: list[int]) -> None:
    """Byte for byte, whatever the id, the sequence, the text and the tokens."""
    delta = Delta(index, text, token_ids, None)
    expected = to_stream_response(request_id, delta).SerializeToString()
    assert EventEncoder(request_id).encode(delta) == expected


def test_other_events_are_too() -> None:
    """Beginning, end and log-probabilities."""
    rows = LogprobsLists(np.array([[5, 6]], "<i4"), np.array([[-0.5, -1.5]], "<f4"), np.array([1], "<i8"))
    finish = SequenceFinish(FinishReason.STOP, None, "\n\n", 7)
    events: list[Event] = [Started(3, 1, [1, 2, 3], None), Delta(1, "é", [5], rows), Finished(0, finish, 3, 1)]
    for event in events:
        assert EventEncoder("r").encode(event) == to_stream_response("r", event).SerializeToString()
