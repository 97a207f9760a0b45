"""Client for Sluicegate.

>>> with Client("127.0.0.1:50051") as client:
...     for delta in client.stream("The capital of France is", max_tokens=32, temperature=0):
...         print(delta.text, end="")
"""

from sluicegate_client.admin import AdminClient
from sluicegate_client.async_admin import AsyncAdminClient
from sluicegate_client.async_client import AsyncClient, AsyncStream
from sluicegate_client.channel import tls_credentials
from sluicegate_client.client import Client, Stream
from sluicegate_client.errors import (
    AlreadyExistsError,
    CallCancelledError,
    DeadlineExceededError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    NotSupportedError,
    OverloadedError,
    SluicegateError,
    TlsError,
    UnauthenticatedError,
    UnavailableError,
    Violation,
)
from sluicegate_client.multiplexed import MultiplexedSession, MultiplexedStream
from sluicegate_client.requests import ChatMessage, GenerateOptions
from sluicegate_client.responses import (
    Delta,
    Finished,
    FinishReason,
    Generation,
    Output,
    Started,
    TokenLogprobs,
    Usage,
)
from sluicegate_client.retry import Retry

__all__ = [
    "AdminClient",
    "AlreadyExistsError",
    "AsyncAdminClient",
    "AsyncClient",
    "AsyncStream",
    "CallCancelledError",
    "ChatMessage",
    "Client",
    "DeadlineExceededError",
    "Delta",
    "FinishReason",
    "Finished",
    "GenerateOptions",
    "Generation",
    "InternalError",
    "InvalidRequestError",
    "MultiplexedSession",
    "MultiplexedStream",
    "NotFoundError",
    "NotSupportedError",
    "Output",
    "OverloadedError",
    "Retry",
    "SluicegateError",
    "Started",
    "Stream",
    "TlsError",
    "TokenLogprobs",
    "UnauthenticatedError",
    "UnavailableError",
    "Usage",
    "Violation",
    "tls_credentials",
]
