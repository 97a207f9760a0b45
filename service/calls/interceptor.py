"""Begins and ends every call, around everything else that is done with it, and tells those who watch."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol, TypeAlias

import grpc

from service.calls.call import Call, begin_running, end_running
from service.security.caller import CALLER

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context = grpc.aio.ServicerContext[Any, Any]


class CallObserver(Protocol):
    """Sees each call twice. Neither method may raise, or wait for anything."""

    def begin(self, call: Call, context: Context, *, is_stream: bool) -> None: ...

    def end(self, call: Call, context: Context, code: grpc.StatusCode, *, is_stream: bool) -> None: ...

    def end_part(self, call: Call, part: Call) -> None:
        """One request of several that ``call`` carries has ended in the core."""

    def miss(self) -> None:
        """A call to what is not there; its name is the caller's to choose."""


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """To be the first interceptor of a server: it sees the status that goes out."""

    def __init__(self, observers: Sequence[CallObserver], probes: Collection[str] = ()) -> None:
        """``probes``: methods that clients call to see if they are here. They are not, and nobody need know."""
        self._observers = observers
        self._probes = probes
        self._seen: dict[tuple[Handler, str], Handler] = {}
        """What each handler was made into."""
        self.model_name = ""
        """Of calls that name no other."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if not handler and handler_call_details.method in self._probes:
            return handler
        if not handler:
            for observer in self._observers:
                observer.miss()
            return handler
        key = handler, str(handler_call_details.method)
        if (observed := self._seen.get(key)) is None:
            observed = self._seen[key] = self._observed(*key)
        return observed

    def _observed(self, handler: Handler, method: str) -> Handler:
        requests, responses = handler.request_streaming, handler.response_streaming
        kind = f"{'stream' if requests else 'unary'}_{'stream' if responses else 'unary'}"
        answer = getattr(handler, kind)

        async def observed(request: Any, context: Context) -> Any:
            call = Call(method, context.invocation_metadata() or (), self.model_name)
            call.key_name = CALLER.get()
            if (remaining_s := context.time_remaining()) is not None:
                call.deadline = call.started_at + remaining_s
            with _Observation(self._observers, call, context, is_stream=responses):
                return await answer(request, context)

        return handler._replace(**{kind: observed})  # type: ignore[attr-defined, no-any-return]


class _Observation:
    """A call while it runs: what runs in the ``with`` block is on its behalf, and those who watch are told."""

    __slots__ = ("_call", "_context", "_is_stream", "_observers", "_running")

    def __init__(self, observers: Sequence[CallObserver], call: Call, context: Context, *, is_stream: bool) -> None:
        self._observers = observers
        self._call = call
        self._context = context
        self._is_stream = is_stream

    def __enter__(self) -> None:
        self._running = begin_running(self._call)
        self._call.hear_part_end = self._end_part
        for observer in self._observers:
            observer.begin(self._call, self._context, is_stream=self._is_stream)

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        code = _code_after(error, self._context)
        for observer in self._observers:
            observer.end(self._call, self._context, code, is_stream=self._is_stream)
        self._call.hear_part_end = None
        end_running(self._running)

    def _end_part(self, part: Call) -> None:
        for observer in self._observers:
            observer.end_part(self._call, part)


def _code_after(error: BaseException | None, context: Context) -> grpc.StatusCode:
    if isinstance(error, asyncio.CancelledError):
        return _code_of_cancelled(context)
    if error is None or isinstance(error, grpc.aio.AbortError):
        return _code_of(context)
    return grpc.StatusCode.UNKNOWN


def _code_of(context: Context) -> grpc.StatusCode:
    """gRPC keeps a number where nobody set a status."""
    code = context.code()
    return code if isinstance(code, grpc.StatusCode) else _CODES[code or 0]


def _code_of_cancelled(context: Context) -> grpc.StatusCode:
    """The server is not told why: the client has gone, or its deadline has passed.

    The client's clock started before ours, by as long as the call was on its way, and is the one that counts.
    """
    remaining_s = context.time_remaining()
    late = remaining_s is not None and remaining_s <= _ON_ITS_WAY_S
    return grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED


_ON_ITS_WAY_S = 0.05
_CODES = {code.value[0]: code for code in grpc.StatusCode}
