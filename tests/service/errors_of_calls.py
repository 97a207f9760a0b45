"""Reading the errors of calls in tests."""

from collections.abc import Awaitable
from typing import Any, NamedTuple

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status


class CallError(NamedTuple):
    """``retry_after_s`` None: no RetryInfo. ``fields``: those of BadRequest."""

    code: grpc.StatusCode
    reason: str
    message: str
    retry_after_s: float | None
    fields: list[str]
    metadata: dict[str, str]


async def error_of(call: Awaitable[Any]) -> CallError:
    """The error that ``call`` ends with; the test fails if it ends well."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return parsed(raised.value)


def parsed(error: grpc.aio.AioRpcError) -> CallError:
    """The status of ``error`` with its details."""
    return of_status(error.code(), rpc_status.from_call(error) or Status(message=error.details()))


def of_entry(status: Status) -> CallError:
    """The status of one request of many."""
    return of_status(next(code for code in grpc.StatusCode if code.value[0] == status.code), status)


def of_status(code: grpc.StatusCode, status: Status) -> CallError:
    """``status`` with its details."""
    info, retry, bad_request = ErrorInfo(), RetryInfo(), BadRequest()
    delay = None
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad_request)
        if detail.Unpack(retry):
            delay = retry.retry_delay.ToTimedelta().total_seconds()
    fields = [violation.field for violation in bad_request.field_violations]
    return CallError(code, info.reason, status.message, delay, fields, dict(info.metadata))
