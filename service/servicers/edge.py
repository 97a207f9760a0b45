"""Where errors become statuses: the one place, around every method of every service.

A ServiceError goes out as its status with google.rpc details in the trailers. Anything else is a bug of ours: it is
logged under an id, and the client is told that id and nothing more.

Here, too, is what bounds any call: the bytes of the messages that calls hold, and the time that a write may take.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

import grpc
from google.rpc.error_details_pb2 import RequestInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from core.wire.sampling_params import Violation
from service.admission.budget import Budget
from service.admission.held_message import MAX_HELD_BYTES, HeldMessage
from service.admission.large_messages import LargeMessages
from service.admission.read_slots import ReadSlots
from service.admission.stall_watch import StallWatch
from service.calls.call import current_call
from service.errors import Internal, InvalidRequest, QueueFull, ServiceError, to_rpc_status

logger = logging.getLogger(__name__)

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context = grpc.aio.ServicerContext[Any, Any]
_Decode = Callable[[bytes], Awaitable[Any]]

WRITE_STALL_TIMEOUT_S = 60.0
_COUNTED_FROM_BYTES = 2**16
_HEALTH = "/grpc.health.v1."


class ErrorEdge(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps each call's handler. One may serve several servers: its bounds are then of all together."""

    def __init__(
        self,
        write_stall_timeout_s: float = WRITE_STALL_TIMEOUT_S,
        max_held_bytes: int = MAX_HELD_BYTES,
        read_slots: ReadSlots | None = None,
    ) -> None:
        """``max_held_bytes``: of the requests of calls that run, and of large answers that were not read yet."""
        self.stall_watch = StallWatch(write_stall_timeout_s)
        self._read_slots = read_slots or ReadSlots()
        self._large_messages = LargeMessages()
        self._message_bytes = Budget(max_held_bytes)
        self._answer_bytes = Budget(max_held_bytes)
        self._guarded: dict[tuple[Handler, bool], Handler] = {}
        """What each handler was made into. Those of a server are few, and the same for every call."""

    @property
    def num_answer_bytes(self) -> int:
        """Of the large unary answers that their clients have not read."""
        return self._answer_bytes.held

    @property
    def num_message_bytes(self) -> int:
        """Of the requests of all calls that run, as they came over the wire."""
        return self._message_bytes.held

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if not handler:
            return handler
        waits = not str(handler_call_details.method).startswith(_HEALTH)  # Probes are small, and must not wait.
        guarded = self._guarded.get((handler, waits))
        if guarded is None:
            guarded = self._guarded[handler, waits] = self._guard(handler, waits)
        return guarded

    def _guard(self, handler: Handler, waits: bool) -> Handler:
        slots = self._read_slots if waits else None
        one = partial(_one_response, _serializer(handler), self._answer_bytes)
        many = partial(_many_responses, self.stall_watch)
        answer: Callable[..., Awaitable[Any]] = many if handler.response_streaming else one
        return _guarded(handler, answer, self._message_bytes, slots, self._large_messages)


def _guarded(
    handler: Handler,
    answer: Callable[..., Awaitable[Any]],
    message_bytes: Budget,
    read_slots: ReadSlots | None,
    large_messages: LargeMessages,
) -> Handler:
    """``handler``, taking a stream of requests whatever it took.

    A call that ends without its request never reaches a handler of one request: gRPC would leave it unanswered.
    """
    # Done here, not by gRPC: it answers UNKNOWN, without details, to what does not decode.
    decode = partial(large_messages.decode, handler.request_deserializer or bytes)
    read = _each_decoded if handler.request_streaming else partial(_only_one_decoded, read_slots)
    answers = "stream" if handler.response_streaming else "unary"
    method = getattr(handler, f"{'stream' if handler.request_streaming else 'unary'}_{answers}")

    async def guarded(messages: AsyncIterator[bytes], context: Context) -> Any:
        held = HeldMessage(message_bytes)
        try:
            try:
                return await answer(method, await read(decode, held, messages, context), context)
            except grpc.aio.BaseError:
                raise
            except Exception as error:
                failure = as_failure(error)
            finally:
                held.release()
            # Not while the error is handled: gRPC keeps what abort raises, and with it every frame that led there.
            await context.abort_with_status(rpc_status.to_status(_named(to_rpc_status(failure))))  # type: ignore[attr-defined]
        except grpc.aio.InternalError as error:
            # Nothing can be sent: the client has gone, and its cancellation is on the way.
            raise asyncio.CancelledError from error

    changes = {
        f"stream_{answers}": guarded,
        "request_streaming": True,
        "request_deserializer": None,
        "response_serializer": _serializer(handler),
    }
    return handler._replace(**changes)  # type: ignore[attr-defined, no-any-return]


def _named(status: Status) -> Status:
    """With the id of the request, which its client may not know: by that id the log tells more."""
    call = current_call()
    if call is not None and call.request_id:
        status.details.add().Pack(RequestInfo(request_id=call.request_id))
    return status


def _serializer(handler: Handler) -> Callable[[Any], bytes]:
    """A method may also give the bytes themselves."""
    serialize = handler.response_serializer or bytes

    def serialized(response: Any) -> bytes:
        return response if isinstance(response, bytes) else serialize(response)

    return serialized


async def _decoded(decode: _Decode, message: bytes) -> Any:
    try:
        return await decode(message)
    except Exception as error:
        violation = Violation("request", f"its {len(message)} bytes do not decode: {error}")
        raise InvalidRequest([violation], reason="UNDECODABLE_REQUEST") from error


async def _only_one_decoded(
    read_slots: ReadSlots | None,
    decode: _Decode,
    held: HeldMessage,
    _: AsyncIterator[bytes],
    context: Context,
) -> Any:
    # Not out of the iterator: left before its end, it would keep the message until it is collected.
    message = await (context.read() if read_slots is None else read_slots.read(context.read))
    if message is grpc.aio.EOF:  # type: ignore[attr-defined]
        raise InvalidRequest([Violation("request", "is required: the call ended without it")], reason="NO_REQUEST")
    held.hold(message)
    request = await _decoded(decode, message)
    if (call := current_call()) is not None:
        call.read(request)
    return request


async def _each_decoded(
    decode: _Decode, held: HeldMessage, messages: AsyncIterator[bytes], _: Context
) -> AsyncIterator[Any]:
    async def decoded() -> AsyncIterator[Any]:
        async for message in messages:
            await held.hold_when_there_is_room(message)
            yield await _decoded(decode, message)

    return decoded()


async def _one_response(
    serialize: Callable[[Any], bytes], answer_bytes: Budget, method: Any, request: Any, context: Context
) -> bytes:
    """gRPC keeps the answer until the client reads it. One that fits into the client's window needs no counting."""
    answer = serialize(await method(request, context))
    if (num_bytes := len(answer)) > _COUNTED_FROM_BYTES:
        if not answer_bytes.has_room(num_bytes):
            bound = f"answers that their clients have not read may have {answer_bytes.limit} bytes together"
            text = f"{bound} and have {answer_bytes.held}, this one has {num_bytes}"
            raise QueueFull(text, retry_after_s=answer_bytes.refuse(num_bytes), reason="ANSWERS_UNREAD")
        answer_bytes.take(num_bytes)
        context.add_done_callback(lambda _: answer_bytes.give_back(num_bytes))  # type: ignore[arg-type]
    return answer


async def _many_responses(stall_watch: StallWatch, method: Any, request: Any, context: Context) -> None:
    """Send what ``method`` yields. A cancelled call closes the generator here and now, not when it is collected."""
    responses = method(request, context)
    del request  # A method that lets go of its request frees it, for as long as the stream runs.
    if not inspect.isasyncgen(responses):
        await responses
        return
    # Tokens come in messages of a few bytes: compressing them costs much and gains nothing, whoever's default it is.
    context.set_compression(grpc.Compression.NoCompression)
    with stall_watch.follow(responses, context.peer) as writing:
        try:
            async for response in responses:
                writing.since = stall_watch.tick
                await context.write(response)
                writing.since = None
                if writing.is_cut:
                    await writing.end_if_cut()
        finally:
            await writing.aclose()


def as_failure(error: Exception, request_id: str | None = None) -> ServiceError:
    """What the client is told of ``error``, without the frames that it came from: the request lives in them.

    A fault of ours is logged, as of ``request_id`` if the current call carries several.
    """
    extra = {"request_id": request_id} if request_id else None
    if not isinstance(error, ServiceError):
        hidden = Internal()
        logger.error("error %s", hidden.error_id, exc_info=error, extra=extra)
        return hidden
    if isinstance(error, Internal):
        logger.error("error %s: %s: %s", error.error_id, error.message, error.cause, exc_info=error, extra=extra)
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
