"""Buffers are used again when, and only when, zmq is done with them."""

import threading

import zmq

from core.send_buffers import MAX_SPARE, SendBuffers


def tracked() -> tuple[threading.Event, zmq.MessageTracker]:
    """A tracker as zmq makes it, and the event that zmq sets when the message has left."""
    event = threading.Event()
    return event, zmq.MessageTracker(event)


def test_a_lent_buffer_is_not_given_out() -> None:
    """While zmq still reads a buffer, another one is given out."""
    buffers = SendBuffers()
    _, tracker = tracked()
    lent = buffers.take()
    buffers.lend(lent, tracker)
    assert buffers.take() is not lent
    assert buffers.num_lent == 1


def test_a_sent_buffer_is_used_again() -> None:
    """Once its message has left, the same buffer is given out."""
    buffers = SendBuffers()
    event, tracker = tracked()
    lent = buffers.take()
    buffers.lend(lent, tracker)
    event.set()
    assert buffers.take() is lent
    assert buffers.num_lent == 0


def test_an_unsent_buffer_is_used_again() -> None:
    """A buffer whose message could not be made is given out again."""
    buffers = SendBuffers()
    buffer = buffers.take()
    buffers.give_back(buffer)
    assert buffers.take() is buffer


def test_spare_buffers_are_few() -> None:
    """After a burst only a few buffers are kept: memory does not stay at its peak."""
    buffers = SendBuffers()
    events = []
    for _ in range(100):
        event, tracker = tracked()
        buffers.lend(buffers.take(), tracker)
        events.append(event)
    assert buffers.num_lent == 100
    for event in events:
        event.set()
    buffers.give_back(buffers.take())
    assert (buffers.num_lent, buffers.num_spare) == (0, MAX_SPARE)
