"""What can go wrong with a call, named by what the caller can do about it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol, cast

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status


class Violation(NamedTuple):
    """One thing wrong with a request."""

    field: str
    """Path of the field, as the proto spells it, such as ``sampling_params.top_p``."""
    description: str
    """What is wrong with it, with the bound."""


class SluicegateError(Exception):
    """A call that failed; ``str()`` is the message. ``__cause__`` is gRPC's own error.

    ``code`` is the gRPC status, ``reason`` the server's name for the fault (empty when it is not the server that
    answers), ``violations`` what is wrong with the request, ``retry_after`` the seconds to wait before the next try
    (None: the server did not say that there should be one; 0: it did, but not when).
    """

    def __init__(
        self,
        message: str,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        reason: str = "",
        violations: tuple[Violation, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.violations = violations
        self.retry_after = retry_after


class InvalidRequestError(SluicegateError):
    """The request itself is wrong: see ``violations``."""


class NotFoundError(SluicegateError):
    """The server does not have this model or adapter."""


class AlreadyExistsError(SluicegateError):
    """Another live request has this ``request_id``, or the name of an adapter is taken."""


class OverloadedError(SluicegateError):
    """The queue is full, or the request is larger than the server takes: see ``retry_after``."""


class UnavailableError(SluicegateError):
    """The server cannot be reached, is starting or is leaving: see ``retry_after``."""


class TlsError(UnavailableError):
    """No connection can be made as it is set up: one side has no TLS, or the server's certificate is not trusted."""


class DeadlineExceededError(SluicegateError, TimeoutError):
    """The call took longer than its ``timeout``; the server has dropped it."""


class CallCancelledError(SluicegateError):
    """Something else than this client's own ``cancel()`` ended the call."""


class UnauthenticatedError(SluicegateError):
    """The server wants credentials."""


class NotSupportedError(SluicegateError):
    """The server does not do this."""


class InternalError(SluicegateError):
    """A fault of the server."""


_ERRORS: dict[grpc.StatusCode, type[SluicegateError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: OverloadedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.CANCELLED: CallCancelledError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.UNIMPLEMENTED: NotSupportedError,
    grpc.StatusCode.INTERNAL: InternalError,
}


_CAUSES = (
    ("Connection refused", "connection refused; is the server running?"),
    ("No such file or directory", "there is no such socket; is the server running?"),
    ("Socket closed", "the server hung up; does it ask for TLS, or for a client's certificate?"),
    ("WRONG_VERSION_NUMBER", "the server does not use TLS there"),
    ("certificate has expired", "the server's certificate has expired"),
    ("CERTIFICATE_VERIFY_FAILED", "the server's certificate is of an authority that is not known here; name it"),
    ("Hostname Verification", "the server's certificate is not for this name"),
    ("http1.x server", "what listens there is an HTTP/1 server, not a gRPC one"),
    ("backend unhealthy", "none of its servers is ready"),
    ("Domain name not found", "there is no such name"),
)
"""Words of gRPC, and what is to be said in their place."""

_OF_TLS = ("WRONG_VERSION_NUMBER", "CERTIFICATE_VERIFY_FAILED", "Hostname Verification")
"""Causes that time does not heal."""

_NO_CONNECTION = ("failed to connect to all addresses", "connections to all backends failing", "errors resolving")
"""How gRPC begins what it says of one server, of several, and of a name."""

_CODES_OF_PROXIES = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
"""What a stream ends with that a proxy cut, since the server behind it died: Envoy's and HAProxy's."""


class _Failure(Protocol):
    """What the errors of gRPC's sync and asyncio channels have in common."""

    def code(self) -> grpc.StatusCode: ...
    def details(self) -> str | None: ...
    def trailing_metadata(self) -> object: ...


@contextmanager
def readable_errors(address: str) -> Iterator[None]:
    """Raises gRPC's errors, of either kind of channel, as ``SluicegateError``."""
    try:
        yield
    except grpc.RpcError as error:
        raise _readable(cast(_Failure, error), address) from error


def error_of_request(status: Status) -> SluicegateError:
    """The error of one request of a stream that carries many."""
    code = next((code for code in grpc.StatusCode if code.value[0] == status.code), grpc.StatusCode.UNKNOWN)
    return _with_details(code, _kind(code), status.details, lambda _: status.message)


def _readable(failure: _Failure, address: str) -> SluicegateError:
    code = failure.code()
    return _with_details(
        code,
        _kind(code, failure.details() or ""),
        _details(failure),
        lambda from_server: _message(failure, address, from_server=from_server),
    )


def _kind(code: grpc.StatusCode, grpc_message: str = "") -> type[SluicegateError]:
    if code is grpc.StatusCode.UNAVAILABLE and any(words in grpc_message for words in _OF_TLS):
        return TlsError
    if _is_cut(code, grpc_message):
        return UnavailableError
    return _ERRORS.get(code, SluicegateError)


def _is_cut(code: grpc.StatusCode, grpc_message: str) -> bool:
    return code in _CODES_OF_PROXIES and grpc_message.startswith("Stream removed")


def _with_details(
    code: grpc.StatusCode,
    kind: type[SluicegateError],
    details: Sequence[AnyMessage],
    message: Callable[[bool], str],
) -> SluicegateError:
    """``message`` gets whether it was the server that answered."""
    info, bad_request, retry = ErrorInfo(), BadRequest(), RetryInfo()
    for detail in details:
        for known in (info, bad_request, retry):
            with suppress(DecodeError):  # Of a fault that is told badly, the rest is told all the same.
                detail.Unpack(known)
    return kind(
        message(bool(info.reason)),
        code,
        info.reason,
        tuple(Violation(each.field, each.description) for each in bad_request.field_violations),
        _seconds(retry) if any(detail.TypeName() == "google.rpc.RetryInfo" for detail in details) else None,
    )


def _seconds(retry: RetryInfo) -> float:
    return max(0.0, retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9)


def _message(failure: _Failure, address: str, from_server: bool) -> str:
    code, message = failure.code(), failure.details() or failure.code().name
    if (code is grpc.StatusCode.UNAVAILABLE or _is_cut(code, message)) and not from_server:
        if message.startswith(_NO_CONNECTION):
            return f"no connection to {address}: {_cause_of(message)}"
        return f"the connection to {address} broke: {message}"
    if message.startswith("Method not found"):  # says gRPC itself
        return f"{address} does not have this call: clients and operators call at different ones"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and not from_server:
        return "the timeout of the call has passed"
    return message


def _cause_of(message: str) -> str:
    """What most likely keeps the connection from being made, in place of gRPC's own words for it."""
    return next((cause for words, cause in _CAUSES if words in message), message)


def _details(failure: _Failure) -> Sequence[AnyMessage]:
    trailers = dict(cast("tuple[tuple[str, bytes], ...]", failure.trailing_metadata() or ()))
    try:
        return Status.FromString(trailers.get("grpc-status-details-bin", b"")).details
    except DecodeError:
        return ()
