"""A collector of spans that speaks OTLP over gRPC, on a real port."""

import asyncio
from types import TracebackType
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(TraceServiceServicer):
    """Use as ``async with``."""

    def __init__(self, address: str = "127.0.0.1:0") -> None:
        self.resource: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.received: list[Span] = []
        self._changed = asyncio.Event()
        self._server = grpc.aio.server()
        add_TraceServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port(address)}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    async def Export(  # noqa: N802
        self, request: ExportTraceServiceRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> ExportTraceServiceResponse:
        self.metadata = dict(context.invocation_metadata() or ())
        for of_resource in request.resource_spans:
            self.resource = attributes_of(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                self.received += of_scope.spans
        self._changed.set()
        return ExportTraceServiceResponse()

    async def spans(self, count: int) -> dict[str, Span]:
        """By name, once there are as many; of a name that comes twice the last."""
        async with asyncio.timeout(60):
            while len(self.received) < count:
                self._changed.clear()
                await self._changed.wait()
        assert len(self.received) == count, [span.name for span in self.received]
        return {span.name: span for span in self.received}

    async def stop(self) -> None:
        await self._server.stop(None)

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()


def attributes_of(pairs: Any) -> dict[str, Any]:
    """Of a span, or of a resource."""
    found: list[KeyValue] = list(pairs)
    return {pair.key: _value(pair.value) for pair in found}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, str(kind))
