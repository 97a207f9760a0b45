"""``python -m core.executor.rank_process MODEL --rank N``: one rank of a model that several processes share.

     core                                  rank process
    ┌──────────────┐  orders   ┌──────────────────────────────────────────────────────┐
    │ RankLink of N│──────────▶│ reader thread ─▶ queue ─▶ main thread: one by one    │──collectives──▶ other ranks
    │              │◀──────────│                           └─ InProcessExecutor       │
    └──────────────┘  answers  └──────────────────────────────────────────────────────┘

When the channel ends the reader thread ends the process, whatever the main thread is doing: the core is gone. A rank
that could not carry out a step says so and waits: the others may hang in a collective, and the core ends them all.
"""

import functools
import gc
import logging
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec
import setproctitle

from core.config import ModelConfig
from core.executor.channel import Channel, as_connection, dial
from core.executor.interface import Executor, ModelRunnerOutput
from core.executor.orders import Answer, Envelope, Execute, Hello, Load, Shutdown
from core.logs import configure_logging
from core.shutdown import request_signal_at_parents_death
from core.wire.codec import Encoder
from core.wire.log_lines import LogFormat

logger = logging.getLogger("core.executor.rank_process")  # Run as __main__.

DIAL_TIMEOUT_S = 600.0
"""Hosts start in any order."""


@dataclass(frozen=True)
class RankPlace:
    """Which rank a process is. ``store_fd``: rank 0's socket, where the others find it.

    ``own_host``: this host's address, at which the others reach it; None: that of rank 0.
    """

    rank: int
    model: Path
    store_fd: int | None = None
    own_host: str | None = None


MakeWorker = Callable[[Load, RankPlace], Executor]


class RankProcess:
    """Carries out orders on what ``make_worker`` makes of the first."""

    def __init__(self, place: RankPlace, connection: "Connection[Any, Any]", make_worker: MakeWorker) -> None:
        self._place = place
        self._make_worker = make_worker
        self._channel = Channel(connection, Envelope)
        self._encoder = Encoder()
        self._lock = threading.Lock()
        """For whoever answers."""
        self._orders: queue.SimpleQueue[Envelope] = queue.SimpleQueue()

    def run(self) -> NoReturn:
        """Until the core says so or is gone."""
        threading.Thread(target=self._read, name="orders", daemon=True).start()
        worker = self._load()
        while True:
            self._carry_out(self._orders.get(), worker)

    def say_hello(self, size: int) -> None:
        """To a core that did not start this process."""
        self._say(Hello(self._place.rank, size))

    def _read(self) -> NoReturn:
        try:
            while not isinstance((envelope := self._channel.receive()).order, Shutdown):
                self._orders.put(envelope)
        except (EOFError, OSError):
            os._exit(1)
        except BaseException:
            logger.exception("rank %d cannot read its orders", self._place.rank)
            os._exit(1)
        os._exit(0)

    def _load(self) -> Executor:
        """Waits for the end if there is nothing to work with."""
        envelope = self._orders.get()
        assert isinstance(envelope.order, Load), "the first order"
        try:
            worker = self._make_worker(envelope.order, self._place)
        except Exception as error:
            self._fail(envelope, error)
            signal.pause()
            raise
        gc.collect()
        gc.freeze()  # What was loaded lives as long as the process.
        self._answer(envelope, None)
        return worker

    def _carry_out(self, envelope: Envelope, worker: Executor) -> None:
        try:
            result = envelope.order.carry_out(worker)
        except Exception as error:
            self._fail(envelope, error)
            return
        if isinstance(result, Future):
            result.add_done_callback(functools.partial(self._answer_later, envelope))
        else:
            self._answer(envelope, result)

    def _answer_later(self, envelope: Envelope, future: "Future[Any]") -> None:
        """On another thread."""
        if (error := future.exception()) is not None:
            self._fail(envelope, error)
        else:
            self._answer(envelope, future.result())

    def _answer(self, envelope: Envelope, result: Any) -> None:
        if not isinstance(result, ModelRunnerOutput):
            self._say(Answer(envelope.number, value=result))
        elif self._place.rank == 0:
            self._say(Answer(envelope.number, result))

    def _fail(self, envelope: Envelope, error: BaseException) -> None:
        is_bad_value, is_fatal = isinstance(error, ValueError), isinstance(envelope.order, Execute)
        if not is_bad_value:
            logger.error("rank %d: %s failed", self._place.rank, type(envelope.order).__name__, exc_info=error)
        text = str(error) if isinstance(error, (ValueError, RuntimeError)) else repr(error)
        self._say(Answer(envelope.number, failure=text, is_bad_value=is_bad_value, is_fatal=is_fatal))

    def _say(self, message: Answer | Hello) -> None:
        with self._lock:
            self._channel.send(self._encoder.encode(message))


def make_worker(load: Load, place: RankPlace) -> Executor:
    """The rank's part of the model, when all ranks have met. Raises as InProcessExecutor.load, or RuntimeError."""
    from core.embedding.load import holds_embedding_model  # Brings in torch, while the reader thread listens.
    from core.executor.in_process import InProcessExecutor
    from core.executor.tensor_group import DistributedTensorGroup
    from core.model.device import find_device

    if holds_embedding_model(place.model):
        raise ValueError(f"tensor_parallel_size must be 1 for a model that embeds, got {load.meeting.size}")
    settings = {**load.settings, "path": str(place.model)}
    config = msgspec.convert(settings, ModelConfig, dec_hook=lambda kind, value: kind(value))
    device = find_device(config.device)
    group = DistributedTensorGroup(load.meeting, place.rank, device, place.store_fd, place.own_host)
    profile_dir = None if load.profile_dir is None else Path(load.profile_dir)
    return InProcessExecutor.load(config, profile_dir, group, load.max_lora_rank)


def rank_command(make_worker: MakeWorker) -> click.Command:
    """The command of a rank process."""

    @click.command()
    @click.argument("model", type=click.Path(path_type=Path))
    @click.option("--rank", type=click.IntRange(min=0), required=True, help="Of this process in the group.")
    @click.option("--control-fd", type=int, help="Inherited end of a pair of sockets, by which the core gives orders.")
    @click.option("--control-host", default="", help="Of the core, if it is elsewhere.")
    @click.option("--control-port", type=int, default=0, help="Its port.")
    @click.option("--size", type=int, default=0, help="Ranks that this host believes to be in the group.")
    @click.option("--store-fd", type=int, help="Inherited socket that listens for the other ranks, on rank 0.")
    @click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
    @click.option("--log-format", type=click.Choice(["text", "json"]), default="text")
    def main(
        model: Path,
        rank: int,
        control_fd: int | None,
        control_host: str,
        control_port: int,
        size: int,
        store_fd: int | None,
        log_level: str,
        log_format: LogFormat,
    ) -> None:
        """Compute one rank's part of MODEL."""
        _live_and_die_with_the_parent()
        setproctitle.setproctitle(f"sluicegate: rank {rank}")
        configure_logging(log_level, log_format)
        if control_fd is not None:
            os.set_inheritable(control_fd, False)
            RankProcess(RankPlace(rank, model, store_fd), Connection(control_fd), make_worker).run()
        stream = _dial(control_host, control_port)
        place = RankPlace(rank, model, own_host=stream.getsockname()[0])
        process = RankProcess(place, as_connection(stream), make_worker)
        process.say_hello(size)
        process.run()

    return main


def _live_and_die_with_the_parent() -> None:
    """A service manager signals this process along with its core, which may have requests to end with it."""
    request_signal_at_parents_death(signal.SIGKILL)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, signal.SIG_IGN)


def _dial(host: str, port: int) -> socket.socket:
    try:
        return dial(host, port, DIAL_TIMEOUT_S)
    except OSError as error:
        raise click.ClickException(f"nobody answers at {host}:{port}: {error}") from error


if __name__ == "__main__":
    rank_command(make_worker)()
