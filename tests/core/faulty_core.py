"""A core in which one thing goes wrong, at whatever is called ``victim``: ``python -m tests.core.faulty_core``."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import click
import numpy as np

from bench.null_engine import NullEngine, NullEngineConfig, NullRequest, Outputs
from core.process import ProcessConfig, run_engine_core
from core.process_options import process_options
from core.wire.messages import EngineCoreRequest, ParallelConfig
from core.wire.tensor import Tensor

VICTIM = "victim"
CONFIG = NullEngineConfig(token_ids=[97, 98, 99], tokens_per_second=50)


class Panic(BaseException):
    """What native code raises when it panics is not an Exception."""


class PanickingTensor(Tensor):
    @property
    def dtype(self) -> str:  # type: ignore[override]
        raise Panic("in the output thread")


class FaultyEngine(NullEngine):
    """``fault``: where, and how, as the methods below have them."""

    def __init__(self, fault: str, on_failure: Callable[[], None]) -> None:
        super().__init__(CONFIG)
        self._fault = fault
        self._on_failure = on_failure

    def preprocess_add_request(self, message: EngineCoreRequest) -> NullRequest:
        if message.request_id.startswith(VICTIM):
            self._raise_at("preprocess")
        return super().preprocess_add_request(message)

    def add_request(self, request: NullRequest) -> None:
        if request.request_id.startswith(VICTIM):
            self._raise_at("add")
            if self._fault == "executor":
                self._on_failure()
        super().add_request(request)

    def abort_requests(self, request_ids: list[str]) -> None:
        if VICTIM in request_ids:
            self._raise_at("abort")
        super().abort_requests(request_ids)

    def call_utility(self, method: str, args: list[Any]) -> Any:
        if method != VICTIM:
            return super().call_utility(method, args)
        self._raise_at("utility")
        later: Future[None] = Future()
        later.set_exception(RuntimeError("utility went wrong later"))
        return later

    def step(self) -> tuple[Outputs, bool]:
        outputs, has_run = super().step()
        for output in (output for message in outputs.values() for output in message.outputs):
            if output.request_id.startswith(VICTIM):
                self._raise_at("step")
                if self._fault == "encoding":
                    output.kv_transfer_params = {"connector": object()}
                if self._fault == "panic in encoding":
                    output.pooling_output = PanickingTensor(np.zeros(1))
        return outputs, has_run

    def _raise_at(self, place: str) -> None:
        if self._fault == place:
            raise RuntimeError(f"{place} went wrong")
        if self._fault == f"panic in {place}":
            raise Panic(f"{place} panicked")
        if self._fault == f"abort in {place}":
            os.abort()


@click.command()
@process_options
@click.option("--fault", required=True)
def main(process: ProcessConfig, fault: str) -> None:
    def load(_group: ParallelConfig, on_failure: Callable[[], None]) -> FaultyEngine:
        return FaultyEngine(fault, on_failure)

    sys.exit(run_engine_core(process, load))


if __name__ == "__main__":
    main()
