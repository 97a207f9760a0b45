"""Answers out of turn have the bytes of the genuine core's."""

from typing import Any

import pytest

from core.replies import finish_reply, refusal, utility_failure, utility_reply
from core.wire.codec import Encoder, WireError
from core.wire.messages import EngineCoreOutputs, FinishReason
from tests.core.wire.recorded import recording


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("core_out_abort_by_sigterm_c0", finish_reply("term#1", FinishReason.ABORT)),
        ("core_out_add_rejected_in_shutdown", finish_reply("late#1", FinishReason.ABORT)),
        ("core_util_rejected_in_shutdown", utility_failure(777, "Server shutting down")),
        ("core_util_reset_prefix_cache", utility_reply(1077, True)),
        ("core_util_reset_mm_cache", utility_reply(1079, None)),
    ],
)
def test_genuine_bytes(name: str, reply: EngineCoreOutputs) -> None:
    """Each reply, at the recorded time, encodes to the recorded frame."""
    recorded: Any = recording(name)
    assert reply.timestamp > 0
    reply.timestamp = recorded.decoded[0][3]
    assert [bytes(frame) for frame in Encoder().encode(reply)] == recorded.frames


def test_cause() -> None:
    """The cause of an error travels as the output's stop reason."""
    (output,) = finish_reply("a", FinishReason.ERROR, "max_tokens must be at least 1, got 0").outputs
    assert output.stop_reason == "max_tokens must be at least 1, got 0"


@pytest.mark.parametrize(
    ("error", "stop_reason"),
    [
        (ValueError("top_p must be in (0, 1], got 2"), "refused: top_p must be in (0, 1], got 2"),
        (WireError("ADD: no frame"), "refused: ADD: no frame"),
        (KeyError("bug"), "'bug'"),
    ],
)
def test_refusal(error: Exception, stop_reason: str) -> None:
    """What is wrong with a request is told from what is wrong with us: the front end can blame the right one."""
    (output,) = refusal("a", error).outputs
    assert (output.finish_reason, output.stop_reason) == (FinishReason.ERROR, stop_reason)
