"""One line of the log for each call that ended: who, what, how it went, how long it took. Never what was said."""

import logging
import time
from collections.abc import Iterator

import grpc

from service.calls.call import Call, running
from service.calls.interceptor import Context
from service.calls.probes import is_probe

logger = logging.getLogger("service.access")


class AccessLog:
    """The same values stand in the message, for people, and in fields of their own where lines are JSON."""

    def begin(self, call: Call, context: Context, *, is_stream: bool) -> None:
        """Nothing yet."""

    def end(self, call: Call, context: Context, code: grpc.StatusCode, *, is_stream: bool) -> None:  # noqa: ARG002
        if is_probe(call.method) or not logger.isEnabledFor(logging.INFO):
            return
        _log(call, _fields(call, code, context.peer()))

    def end_part(self, call: Call, part: Call) -> None:  # noqa: ARG002
        if not logger.isEnabledFor(logging.INFO):
            return
        with running(part):
            duration_s = round(time.monotonic() - part.started_at, 6)
            _log(part, {"duration_s": duration_s} | dict(_of_request(part)))

    def miss(self) -> None:
        logger.info("%s", "no such method: UNIMPLEMENTED", extra={"fields": {"code": "UNIMPLEMENTED"}})


def _log(call: Call, fields: dict[str, object]) -> None:
    message = " ".join(f"{name}={value}" for name, value in fields.items())
    logger.info("%s", f"{call.method} {message}", extra={"fields": fields})


def _fields(call: Call, code: grpc.StatusCode, peer: str) -> dict[str, object]:
    fields: dict[str, object] = {
        "code": code.name,
        "duration_s": round(time.monotonic() - call.started_at, 6),
        "peer": peer,
    }
    return fields | dict(_of_request(call))


def _of_request(call: Call) -> Iterator[tuple[str, object]]:
    if call.key_name:
        yield "key_name", call.key_name
    if call.num_sequences:
        yield "prompt_tokens", call.num_prompt_tokens
        yield "output_tokens", call.num_output_tokens
        yield "finish_reasons", ",".join(sorted({end.reason.name.lower() for end in call.ends}))
    if (ttft_s := call.time_to_first_token_s) is not None:
        yield "ttft_s", round(ttft_s, 6)
