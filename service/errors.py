"""What can go wrong with a call, named by what the caller can do about it; each knows its status and its details."""

# ruff: noqa: N818 - the names are those of the statuses, as callers know them

import random
import reprlib
import secrets
from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from core.wire.sampling_params import Violation

DOMAIN = "sluicegate"
_MAX_MESSAGE_CHARS = 1000
_MAX_VIOLATIONS_CHARS = 3000
"""Message and details travel in trailers, in base64 too, and peers limit these to 8 KiB together."""
_MAX_DESCRIPTION_CHARS = 256

_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = 64


def shown(value: object) -> str:
    """``value`` as it may stand in a message: quoted, and short however long the client made it."""
    return _shortened.repr(value)


class ServiceError(Exception):
    """A call that fails. ``reason`` is for programs (UPPER_SNAKE, stable), the message for people."""

    code: ClassVar[grpc.StatusCode]
    reason = "UNSPECIFIED"

    def __init__(self, message: str, *, reason: str | None = None, **metadata: str) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.reason
        self.metadata = metadata

    def details(self) -> list[Message]:
        """google.rpc messages for the status; the first is always an ErrorInfo."""
        return [ErrorInfo(reason=self.reason, domain=DOMAIN, metadata=self.metadata)]


class InvalidRequest(ServiceError):
    """Correct the fields named in ``violations``; there is at least one."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "INVALID_REQUEST"

    def __init__(self, violations: Sequence[Violation], *, reason: str | None = None) -> None:
        self.violations = _that_fit(violations)
        named = "; ".join(f"{field}: {text}" for field, text in self.violations)
        num_unnamed = len(violations) - len(self.violations)
        more = f"; and {num_unnamed} more" if num_unnamed else ""
        super().__init__(named[:_MAX_MESSAGE_CHARS] + more, reason=reason)

    def details(self) -> list[Message]:
        fields = [BadRequest.FieldViolation(field=field, description=text) for field, text in self.violations]
        return [*super().details(), BadRequest(field_violations=fields)]


class NotFound(ServiceError):
    """Name something that is there."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "NOT_FOUND"


class AlreadyExists(ServiceError):
    """Choose another ``request_id``, or name, or wait until its holder has ended."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "REQUEST_ID_IN_USE"


class Unimplemented(ServiceError):
    """Do without it: this server does not have it."""

    code = grpc.StatusCode.UNIMPLEMENTED
    reason = "UNIMPLEMENTED"


class ResourceExhausted(ServiceError):
    """Ask for less: no waiting makes this fit."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "TOO_LARGE"


class Unauthenticated(ServiceError):
    """Bring a key that this server knows."""

    code = grpc.StatusCode.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class PermissionDenied(ServiceError):
    """The key that was brought does not open this."""

    code = grpc.StatusCode.PERMISSION_DENIED
    reason = "PERMISSION_DENIED"


class Aborted(ServiceError):
    """The call was given up on; the reason says what for. Nothing is to be gained by repeating it as it was."""

    code = grpc.StatusCode.ABORTED
    reason = "ABORTED"


class OutOfRange(ServiceError):
    """Ask for what is there: the message says from where to where it goes."""

    code = grpc.StatusCode.OUT_OF_RANGE
    reason = "OUT_OF_RANGE"


class DataLoss(ServiceError):
    """Forget what came before, and begin anew: something between cannot be had any more."""

    code = grpc.StatusCode.DATA_LOSS
    reason = "DATA_LOSS"


class FailedPrecondition(ServiceError):
    """Change the engine's state first; the message, which is the core's, says what is in the way."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "ENGINE_REFUSED"


class RetryableError(ServiceError):
    """Try again after ``retry_after_s`` seconds; ``spread``: or so many times as long more, as chance has it."""

    spread: ClassVar[float] = 0.0

    def __init__(self, message: str, *, retry_after_s: float = 1.0, reason: str | None = None, **metadata: str) -> None:
        super().__init__(message, reason=reason, **metadata)
        self.retry_after_s = retry_after_s

    def details(self) -> list[Message]:
        delay = Duration()
        delay.FromMilliseconds(round(self.retry_after_s * (1 + self.spread * random.random()) * 1000))
        return [*super().details(), RetryInfo(retry_delay=delay)]


class QueueFull(RetryableError):
    """Too many requests wait already."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "QUEUE_FULL"


class Unavailable(RetryableError):
    """Not ready, draining, or the engine core is gone."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "UNAVAILABLE"
    spread = 1.0
    """All are told at once, and should not all return at once."""


class Internal(ServiceError):
    """Our fault. The client gets an ``error_id``; whoever catches this logs the ``cause`` under the same id."""

    code = grpc.StatusCode.INTERNAL
    reason = "INTERNAL"

    def __init__(self, message: str = "internal error", *, reason: str | None = None, cause: str = "") -> None:
        self.error_id = secrets.token_hex(6)
        self.cause = cause
        super().__init__(f"{message} (error id {self.error_id})", reason=reason, error_id=self.error_id)


def _that_fit(violations: Sequence[Violation]) -> list[Violation]:
    shortened = [Violation(field, text[:_MAX_DESCRIPTION_CHARS]) for field, text in violations]
    sizes = accumulate(len(field) + len(text) for field, text in shortened)
    return [violation for violation, size in zip(shortened, sizes, strict=True) if size <= _MAX_VIOLATIONS_CHARS]


def to_rpc_status(error: ServiceError) -> Status:
    """``error`` as google.rpc.Status with its details, for `grpc-status-details-bin` and for multiplexed streams."""
    status = Status(code=error.code.value[0], message=error.message)
    for detail in error.details():
        packed = Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status
