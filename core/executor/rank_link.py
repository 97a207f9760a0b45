"""The core's end of the channel to one rank."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

import setproctitle

from core.executor.channel import Channel
from core.executor.orders import Answer
from core.wire.codec import Frame


def gather(futures: Sequence["Future[Any]"]) -> "Future[list[Any]]":
    """All their results, or the first one's exception that has one; once all are done."""
    gathered: Future[list[Any]] = Future()
    others = itertools.count(len(futures) - 1, -1)

    def settle(_future: "Future[Any]") -> None:
        if next(others):
            return
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            gathered.set_exception(errors[0])
        else:
            gathered.set_result([future.result() for future in futures])

    for future in futures:
        future.add_done_callback(settle)
    return gathered


class RankLink:
    """Sends orders, from one thread, and gives each answer to whoever asked, on a thread of its own.

    ``on_loss`` is told, on that thread, why the rank cannot go on.
    """

    def __init__(self, rank: int, connection: "Connection[Any, Any]", on_loss: Callable[[int, str], None]) -> None:
        self.rank = rank
        self._channel = Channel(connection, Answer)
        self._on_loss = on_loss
        self._lock = threading.Lock()
        self._asked: dict[int, Future[Any]] = {}
        self._error: Exception | None = None

    def start(self) -> None:
        threading.Thread(target=self._read, name=f"rank-{self.rank}", daemon=True).start()

    def ask(self, number: int, order: Sequence[Frame]) -> "Future[Any]":
        """The future of what the rank answers to ``order``, which has ``number``. Raises what ``fail`` was given."""
        future: Future[Any] = Future()
        with self._lock:
            if self._error is not None:
                raise self._error
            self._asked[number] = future
        self.tell(order)
        return future

    def tell(self, order: Sequence[Frame]) -> None:
        """Await no answer. That a rank is gone is not noticed here."""
        with contextlib.suppress(OSError):  # The reading thread finds the end of the stream.
            self._channel.send(order)

    def fail(self, error: Exception) -> None:
        """Whoever waits for an answer gets ``error``, and so does whoever asks from now on. The rank reads the end."""
        self._channel.hang_up()
        with self._lock:
            self._error = self._error or error
            asked, self._asked = self._asked, {}
        for future in asked.values():
            future.set_exception(error)

    def _read(self) -> None:
        setproctitle.setthreadtitle(f"core-rank-{self.rank}")
        try:
            while not (answer := self._channel.receive()).is_fatal:
                self._take(answer)
            reason = str(answer.failure)
        except (EOFError, OSError):
            reason = ""
        except Exception as error:
            reason = f"its answer cannot be read: {error}"
        self._on_loss(self.rank, reason)

    def _take(self, answer: Answer) -> None:
        with self._lock:
            future = self._asked.pop(answer.number, None)
        if future is None:
            return  # Nobody awaits it, or nobody any more.
        if answer.error is not None:
            future.set_exception(answer.error)
        else:
            future.set_result(answer.value if answer.output is None else answer.output)
