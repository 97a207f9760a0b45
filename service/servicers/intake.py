"""Requests on their way in: read, let in, put to the core."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from google.protobuf.message import Message

from service.events import Event
from service.gate import Backend, Gate
from service.generation_request import GenerationRequest
from service.run import Run
from service.served_model import ServedModel
from service.text.text_threads import TextThreads
from service.translate import translate
from sluicegate.v1 import inference_service_pb2 as pb

_Request = TypeVar("_Request", bound=Message)
_Result = TypeVar("_Result")

_INLINE_BELOW_BYTES = 4096
"""Smaller requests are read on the event loop, within a millisecond or two; changing threads would cost more."""


class Intake:
    """Of every API: whatever form a request has, it is let in, read where that holds nobody up, and put to the core.

    A request enters the gate twice: a drain may have begun, or its adapter have gone, while it was read.

    ``open`` and ``start`` check the room again, too; a full queue should not have to read a long text first.
    """

    def __init__(self, gate: Gate, text_threads: TextThreads) -> None:
        self._gate = gate
        self._text_threads = text_threads

    def enter(self) -> Backend:
        """For a request that is to be read. Raises Unavailable, and QueueFull."""
        backend = self._gate.enter()
        backend.generator.check_room(1)
        return backend

    def read_if_short(self, request: pb.GenerateRequest) -> GenerationRequest | None:
        """``request`` translated; None: that would take long, await ``read``. Raises as ``read``."""
        backend = self.enter()
        return translate(request, backend.model) if request.ByteSize() < _INLINE_BELOW_BYTES else None

    async def read(self, request: pb.GenerateRequest) -> GenerationRequest:
        """``request`` translated. Raises as ``translate``, Unavailable, and QueueFull."""
        backend = self.enter()
        return await self.off_loop_if_long(translate, request, backend.model)

    def open(
        self, request: GenerationRequest, on_arrival: Callable[[bool], None]
    ) -> AbstractContextManager[Run[Event]]:
        """See Generator. Raises Unavailable, and NotFound for an adapter that has gone, as well."""
        return self._backend_for(request).generator.open(request, on_arrival)

    def start(self, request: GenerationRequest) -> AbstractContextManager[AsyncIterator[Event]]:
        """See Generator. Raises as ``open``."""
        return self._backend_for(request).generator.start(request)

    async def off_loop_if_long(
        self,
        work: Callable[[_Request, ServedModel], _Result],
        request: _Request,
        model: ServedModel,
        inline_below_bytes: int = _INLINE_BELOW_BYTES,
    ) -> _Result:
        """``work(request, model)``, in a thread where that may take long. Raises QueueFull as well."""
        num_bytes = request.ByteSize()
        if num_bytes < inline_below_bytes:
            return work(request, model)
        return await self._text_threads.run(num_bytes, work, request, model)

    def _backend_for(self, request: GenerationRequest) -> Backend:
        backend = self._gate.enter()
        backend.adapters.check_loaded(request.lora)
        return backend
