"""Calls by method, status and duration, counted around everything else that is done with a call."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import grpc
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from service.metrics.histogram import SECONDS_TO_FIRST_TOKEN, Histogram

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Context = grpc.aio.ServicerContext[Any, Any]
_NO_METHOD = "unknown"
"""Of a call to what is not there: its name is the caller's to choose, and would make a series each."""


class RpcMetrics(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Counts the calls of every server that it intercepts. The first interceptor sees the status that goes out."""

    def __init__(self) -> None:
        self._num_handled: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._durations_s: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS_TO_FIRST_TOKEN))
        self._num_streams: defaultdict[str, int] = defaultdict(int)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if not handler:
            self._num_handled[_NO_METHOD, grpc.StatusCode.UNIMPLEMENTED.name] += 1
            return handler
        return self._counted(handler, str(handler_call_details.method))

    def families(self) -> Iterator[Metric]:
        """What was counted, as metric families."""
        handled = CounterMetricFamily("sluicegate:rpcs", "Calls that ended.", labels=["method", "code"])
        for labels, count in self._num_handled.items():
            handled.add_metric(labels, count)
        yield handled
        durations = HistogramMetricFamily("sluicegate:rpc_duration_seconds", "How long calls took.", labels=["method"])
        for method, histogram in self._durations_s.items():
            durations.add_metric([method], histogram.buckets(), histogram.sum)
        yield durations
        streams = GaugeMetricFamily("sluicegate:streams_open", "Streaming calls that run.", labels=["method"])
        for method, count in self._num_streams.items():
            streams.add_metric([method], count)
        yield streams

    def _counted(self, handler: Handler, method: str) -> Handler:
        requests, responses = handler.request_streaming, handler.response_streaming
        kind = f"{'stream' if requests else 'unary'}_{'stream' if responses else 'unary'}"
        answer = getattr(handler, kind)

        async def counted(request: Any, context: _Context) -> Any:
            with self._counting(method, context, is_stream=responses):
                return await answer(request, context)

        return handler._replace(**{kind: counted})  # type: ignore[attr-defined, no-any-return]

    @contextmanager
    def _counting(self, method: str, context: _Context, is_stream: bool) -> Iterator[None]:
        start = time.monotonic()
        self._num_streams[method] += is_stream
        code = grpc.StatusCode.UNKNOWN
        try:
            yield
            code = _code_of(context)
        except asyncio.CancelledError:
            code = _code_of_cancelled(context)
            raise
        except grpc.aio.AbortError:
            code = _code_of(context)
            raise
        finally:
            self._num_streams[method] -= is_stream
            self._num_handled[method, code.name] += 1
            self._durations_s[method].observe(time.monotonic() - start)


def _code_of(context: _Context) -> grpc.StatusCode:
    """gRPC keeps a number where nobody set a status."""
    code = context.code()
    return code if isinstance(code, grpc.StatusCode) else _CODES[code or 0]


def _code_of_cancelled(context: _Context) -> grpc.StatusCode:
    """The server is not told why: the client has gone, or its deadline has passed."""
    remaining_s = context.time_remaining()
    late = remaining_s is not None and remaining_s <= 0
    return grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED


_CODES = {code.value[0]: code for code in grpc.StatusCode}
