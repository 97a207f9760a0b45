"""Calls to cores that wait for their answer."""

import asyncio
import itertools
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from core.wire.messages import UtilityOutput


class UtilityError(Exception):
    """The core refused a utility call or failed at it; the text is the core's."""


class _Call(NamedTuple):
    rank: int
    answer: asyncio.Future[Any]


class UtilityCalls:
    """Each has an id, by which its answer is known. Owned by the event loop."""

    def __init__(self) -> None:
        # An answer to a process that is gone may come to the one that has taken its place.
        self._ids = itertools.count(secrets.randbits(31) << 31)
        self._waiting: dict[int, _Call] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def one(self, rank: int) -> Iterator[tuple[int, asyncio.Future[Any]]]:
        """The id of a new call to the core of ``rank``, and its answer to come; forgotten when the block is left."""
        call_id = next(self._ids)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = _Call(rank, answer)
        try:
            yield call_id, answer
        finally:
            del self._waiting[call_id]

    def resolve(self, output: UtilityOutput) -> None:
        """Hand an answer to its caller, if somebody still waits for it."""
        call = self._waiting.get(output.call_id)
        if call is None or call.answer.done():
            return
        if output.failure_message is not None:
            call.answer.set_exception(UtilityError(output.failure_message))
        else:
            call.answer.set_result(output.result[1] if output.result else None)

    def fail(self, rank: int, error: Exception) -> None:
        """Let every call that waits for the core of ``rank`` raise ``error``."""
        for call in self._waiting.values():
            if call.rank == rank and not call.answer.done():
                call.answer.set_exception(error)


def agreed(method: str, answers: list[Any]) -> Any:
    """The one answer to a call that every core was asked.

    Of yes and no it is yes to a question, ``is_…``, if it is so of any, and to an order if all have carried it out. Of
    other answers it is the first.
    """
    if not all(isinstance(answer, bool) for answer in answers):
        return answers[0]
    return any(answers) if method.startswith("is_") else all(answers)
