"""The statuses that a router makes the best of.

A router tries RESOURCE_EXHAUSTED and UNAVAILABLE again, at this server or another one, and hands the message of
INVALID_ARGUMENT to its client as the client's own fault. So what no retry can help is INVALID_ARGUMENT here, whatever
it is elsewhere. The details stay as they are, but for the fields, which get the names of this API.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from core.wire.sampling_params import Violation
from service.errors import InvalidRequest, ResourceExhausted, ServiceError, Unimplemented

_FIELDS = {
    "PROMPT_EXCEEDS_KV_CACHE": "input",
    "TOO_MANY_TOKENS": "input",
    "TOO_MANY_SEQUENCES": "sampling_params.n",
}


class TimedOut(ServiceError):  # noqa: N818 - named as the others are
    """The time that the request gave has passed."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    reason = "TIMED_OUT"


@contextmanager
def as_routers_expect() -> Iterator[None]:
    """Errors of the block that mean "never here" leave it as InvalidRequest."""
    try:
        yield
    except (ResourceExhausted, Unimplemented) as error:
        violation = Violation(_FIELDS.get(error.reason, "request"), error.message)
        raise InvalidRequest([violation], reason=error.reason) from error
