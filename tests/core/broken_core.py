"""Core processes that go wrong: ``python -m tests.core.broken_core --handshake-address ADDRESS --fault FAULT``."""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

import click

from bench.null_engine import NullEngine, Outputs
from core.process import ProcessConfig, run_engine_core
from core.process_options import process_options
from core.wire.messages import ParallelConfig


class CrashingEngine(NullEngine):
    """Raises when it has given every request two tokens."""

    _num_steps = 0

    def step(self) -> tuple[Outputs, bool]:
        self._num_steps += 1
        if self._num_steps > 2:
            raise RuntimeError("the model exploded")
        return super().step()


class LeakingEngine(NullEngine):
    """Finds, when it has nothing left to do, that it has lost count."""

    def check_integrity(self) -> None:
        raise RuntimeError("7 free + 0 held != 8 usable blocks")


class HangingEngine(NullEngine):
    """Its first step never ends."""

    def step(self) -> NoReturn:
        wait_forever()


class LeavingHangingEngine(CrashingEngine):
    """Crashes, and then its teardown never ends."""

    def shutdown(self) -> None:
        wait_forever()


class SignalledLeavingEngine(NullEngine):
    """While it cleans up, SIGTERM and SIGINT come again."""

    def shutdown(self) -> None:
        for signum in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), signum)
        logging.info("cleaned up")


def wait_forever() -> NoReturn:
    while True:
        threading.Event().wait()


def load_crashing(_group: ParallelConfig, _on_failure: Callable[[], None]) -> NullEngine:
    return CrashingEngine()


def load_leaking(_group: ParallelConfig, _on_failure: Callable[[], None]) -> NullEngine:
    return LeakingEngine()


def load_hanging(_group: ParallelConfig, _on_failure: Callable[[], None]) -> NullEngine:
    return HangingEngine()


def load_leaving_hanging(_group: ParallelConfig, _on_failure: Callable[[], None]) -> NullEngine:
    return LeavingHangingEngine()


def load_signalled_leaving(_group: ParallelConfig, _on_failure: Callable[[], None]) -> NullEngine:
    return SignalledLeavingEngine()


def load_losing_executor(_group: ParallelConfig, on_failure: Callable[[], None]) -> NullEngine:
    """An engine whose executor fails while it is idle."""
    on_failure()
    return NullEngine()


def wait_inside_the_load() -> NoReturn:
    logging.info("inside the load")
    wait_forever()


def load_never(_group: ParallelConfig, _on_failure: Callable[[], None]) -> NoReturn:
    wait_inside_the_load()


def load_swallowing_exit(_group: ParallelConfig, _on_failure: Callable[[], None]) -> NoReturn:
    """A load that no exception ends, as one that sits in native code would be."""
    while True:
        with contextlib.suppress(SystemExit):
            wait_inside_the_load()


def load_failing(_group: ParallelConfig, _on_failure: Callable[[], None]) -> NoReturn:
    raise ValueError("no such model")


FAULTS: dict[str, Callable[[ParallelConfig, Callable[[], None]], NullEngine]] = {
    "crash": load_crashing,
    "leak": load_leaking,
    "hang": load_hanging,
    "hang-leaving": load_leaving_hanging,
    "signalled-leaving": load_signalled_leaving,
    "lose-executor": load_losing_executor,
    "load-never": load_never,
    "load-swallowing-exit": load_swallowing_exit,
    "load-failing": load_failing,
}


@click.command()
@process_options
@click.option("--fault", type=click.Choice(list(FAULTS)), required=True)
def main(process: ProcessConfig, fault: str) -> None:
    sys.exit(run_engine_core(process, FAULTS[fault]))


if __name__ == "__main__":
    main()
