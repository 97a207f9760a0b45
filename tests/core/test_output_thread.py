"""The thread that sends, at its end."""

import queue
import time

import zmq

from core.front_ends import FrontEnds
from core.intake import OutputQueue
from core.output_thread import OutputThread
from core.wire.messages import EngineCoreOutputs, UtilityOutput

FOR_EVER_MS = -1


def test_nobody_waits_for_a_front_end_that_is_gone() -> None:
    """What was left for it is dropped, however long others are given to take theirs."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.connect("ipc:///tmp/nobody-listens-here")
    front_ends = FrontEnds(1, time.monotonic())
    assert front_ends.take_lost(float("inf")) == [0]
    outputs: OutputQueue = queue.SimpleQueue()
    thread = OutputThread([socket], outputs, front_ends, 0, lambda _: None, lambda _: None)
    thread.start()
    outputs.put((0, EngineCoreOutputs(utility_output=UtilityOutput(1))))
    assert thread.stop(FOR_EVER_MS)
    context.term()
