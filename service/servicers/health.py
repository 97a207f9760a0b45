"""grpc.health.v1: Check, List, and a Watch that stays open and pushes every change."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from grpc.aio import ServicerContext
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthServicer

from service.errors import NotFound, shown

_Context = ServicerContext[Any, Any]
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
LIVENESS = "liveness"
READINESS = "readiness"


class Health(HealthServicer):  # type: ignore[misc]
    """``liveness`` is SERVING while the process answers; ``""``, ``readiness`` and each service follow the gate."""

    def __init__(self, services: Iterable[str]) -> None:
        names = ["", READINESS, *services]
        self._statuses = {LIVENESS: _SERVING} | dict.fromkeys(names, _NOT_SERVING)
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def is_serving(self) -> bool:
        """What ``readiness`` says."""
        return bool(self._statuses[READINESS] == _SERVING)

    def set_serving(self, serving: bool) -> None:
        """Take up or give up serving; everyone who watches is told."""
        status = _SERVING if serving else _NOT_SERVING
        self._statuses = dict.fromkeys(self._statuses, status) | {LIVENESS: _SERVING}
        self._announce()

    def close(self) -> None:
        """End the watches: the server stops."""
        self._closed = True
        self._announce()

    async def Check(
        self,
        request: health_pb2.HealthCheckRequest,
        context: _Context,
    ) -> health_pb2.HealthCheckResponse:
        """The status of one service. Raises NotFound for a name that is not there."""
        if request.service not in self._statuses:
            raise NotFound(f"no service {shown(request.service)}")
        return health_pb2.HealthCheckResponse(status=self._statuses[request.service])

    async def List(
        self,
        request: health_pb2.HealthListRequest,
        context: _Context,
    ) -> health_pb2.HealthListResponse:
        """Every name with its status."""
        statuses = self._statuses.items()
        return health_pb2.HealthListResponse(
            statuses={name: health_pb2.HealthCheckResponse(status=status) for name, status in statuses}
        )

    async def Watch(
        self,
        request: health_pb2.HealthCheckRequest,
        context: _Context,
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """The status now and after every change, until the server stops; SERVICE_UNKNOWN for a name not there."""
        last = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, _SERVICE_UNKNOWN)
            if status != last:
                last = status
                yield health_pb2.HealthCheckResponse(status=status)
            elif self._closed:
                return
            else:
                await changed.wait()

    def _announce(self) -> None:
        """Wake the watches, each of which then waits for the next change."""
        self._changed.set()
        self._changed = asyncio.Event()
