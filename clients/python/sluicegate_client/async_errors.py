"""The errors of asyncio's channels, which end calls by cancelling whoever awaits them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from sluicegate_client.errors import CallCancelledError, readable_errors


@contextmanager
def readable_async_errors(address: str) -> Iterator[None]:
    """As ``readable_errors``. A call that is cancelled under a task which is not is an error of the call: for the task
    to end as if somebody had cancelled it would tell nobody.
    """
    try:
        with readable_errors(address):
            yield
    except asyncio.CancelledError:
        if _current_task_is_cancelled():
            raise
        raise CallCancelledError("the call was cancelled, or its client closed", grpc.StatusCode.CANCELLED) from None


def _current_task_is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
