"""Calls to the core that wait for their answer."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from core.wire.messages import UtilityOutput


class UtilityError(Exception):
    """The core refused a utility call or failed at it; the text is the core's."""


class UtilityCalls:
    """Each has an id, by which its answer is known. Owned by the event loop."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def one(self) -> Iterator[tuple[int, asyncio.Future[Any]]]:
        """A new call's id and its answer to come; forgotten when the block is left."""
        call_id = next(self._ids)
        answer = self._waiting[call_id] = asyncio.get_running_loop().create_future()
        try:
            yield call_id, answer
        finally:
            del self._waiting[call_id]

    def resolve(self, output: UtilityOutput) -> None:
        """Hand an answer to its caller, if somebody still waits for it."""
        answer = self._waiting.get(output.call_id)
        if answer is None or answer.done():
            return
        if output.failure_message is not None:
            answer.set_exception(UtilityError(output.failure_message))
        else:
            answer.set_result(output.result[1] if output.result else None)

    def fail(self, error: Exception) -> None:
        """Let every call that waits raise ``error``."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)
