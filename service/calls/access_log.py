"""One line of the log for each call that ended: who, what, how it went, how long it took. Never what was said."""

import logging
import time

import grpc

from service.calls.call import Call
from service.calls.interceptor import Context
from service.security.caller import CALLER

logger = logging.getLogger("service.access")

_QUIET = "/grpc.health.", "/grpc.reflection.", "/grpc.channelz."
"""Asked by machines all the time."""


class AccessLog:
    """The same values stand in the message, for people, and in fields of their own where lines are JSON."""

    def begin(self, call: Call, context: Context, *, is_stream: bool) -> None:
        """Nothing yet."""

    def end(self, call: Call, context: Context, code: grpc.StatusCode, *, is_stream: bool) -> None:  # noqa: ARG002
        if call.method.startswith(_QUIET):
            return
        fields = _fields(call, code, context.peer())
        message = " ".join(f"{name}={value}" for name, value in fields.items())
        logger.info("%s", f"{call.method} {message}", extra={"fields": fields})

    def miss(self) -> None:
        logger.info("%s", "no such method: UNIMPLEMENTED", extra={"fields": {"code": "UNIMPLEMENTED"}})


def _fields(call: Call, code: grpc.StatusCode, peer: str) -> dict[str, object]:
    fields: dict[str, object] = {
        "code": code.name,
        "duration_s": round(time.monotonic() - call.started_at, 6),
        "peer": peer,
    }
    if caller := CALLER.get():
        fields["caller"] = caller
    if call.num_sequences:
        fields |= {"prompt_tokens": call.num_prompt_tokens, "output_tokens": call.num_output_tokens}
        fields["finish_reasons"] = ",".join(sorted({end.reason.name.lower() for end in call.ends}))
    if (ttft_s := call.time_to_first_token_s) is not None:
        fields["ttft_s"] = round(ttft_s, 6)
    return fields
