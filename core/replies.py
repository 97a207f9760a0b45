"""Outputs that no step made: a request refused or ended out of turn, the answer to a utility call."""

import time
from typing import Any

from core.wire.codec import WireError
from core.wire.messages import REFUSED, EngineCoreOutput, EngineCoreOutputs, FinishReason, UtilityOutput


def finish_reply(request_id: str, reason: FinishReason, cause: str | None = None) -> EngineCoreOutputs:
    """The one and final output of ``request_id``. ``cause`` says what was wrong, as the output's ``stop_reason``."""
    output = EngineCoreOutput(request_id, [], finish_reason=reason, stop_reason=cause)
    return EngineCoreOutputs(outputs=[output], timestamp=time.monotonic(), finished_requests=[request_id])


def refusal(request_id: str, error: Exception) -> EngineCoreOutputs:
    """Of a request that was not taken on, because of ``error``: one in the request, or else one of our own."""
    is_in_the_request = isinstance(error, ValueError | WireError)
    return finish_reply(request_id, FinishReason.ERROR, f"{REFUSED}{error}" if is_in_the_request else str(error))


def utility_reply(call_id: int, result: Any) -> EngineCoreOutputs:
    return _utility(UtilityOutput(call_id, result=(None, result)))


def utility_failure(call_id: int, message: str) -> EngineCoreOutputs:
    return _utility(UtilityOutput(call_id, failure_message=message))


def _utility(answer: UtilityOutput) -> EngineCoreOutputs:
    return EngineCoreOutputs(timestamp=time.monotonic(), utility_output=answer)
