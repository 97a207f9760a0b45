"""How many requests there were, how they ended, and how long they took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from service.servicers.kserve.infer_request import VERSION
from sluicegate.third_party.inference import grpc_service_pb2 as pb


class InferStatistics:
    """Since the start, of all models of the server together. Owned by the event loop."""

    def __init__(self) -> None:
        self._success = pb.StatisticDuration()
        self._fail = pb.StatisticDuration()
        self._last_at_ms = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """A request, from when it is read to its last response. One that its client gives up counts as failed."""
        began_at = time.monotonic_ns()
        outcome = self._fail
        try:
            yield
            outcome = self._success
        finally:
            outcome.count += 1
            outcome.ns += time.monotonic_ns() - began_at
            self._last_at_ms = time.time_ns() // 1_000_000

    def of(self, name: str) -> pb.ModelStatistics:
        return pb.ModelStatistics(
            name=name,
            version=VERSION,
            last_inference=self._last_at_ms,
            inference_count=self._success.count,
            execution_count=self._success.count,
            inference_stats=pb.InferStatistics(success=self._success, fail=self._fail),
        )
