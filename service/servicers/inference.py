"""sluicegate.v1.InferenceService."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from google.protobuf.message import Message
from grpc.aio import ServicerContext

from core.wire.pooling_params import EMBED_TASK
from service.events import Event
from service.gate import Gate
from service.generation_request import GenerationRequest
from service.run import Run
from service.served_model import ServedModel
from service.servicers.edge import not_built
from service.servicers.event_encoder import EventEncoder
from service.servicers.responses import ResponseBuilder, is_small, off_loop_if_large
from service.text_threads import TextThreads
from service.translate import detokenize, tokenize, translate, translate_embed
from service.wakeup import Wakeup
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceServicer

_Context = ServicerContext[Any, Any]
_Request = TypeVar("_Request", bound=Message)
_Result = TypeVar("_Result")

_INLINE_BELOW_BYTES = 4096
"""Smaller requests are translated on the event loop, within a millisecond or two; changing threads would cost more."""


class InferenceServicer(InferenceServiceServicer):
    """Text generation, embedding and tokenization.

    A call enters the gate twice: a drain may have begun, or its adapter have gone, while a long prompt was tokenized.
    """

    def __init__(self, gate: Gate, text_threads: TextThreads) -> None:
        self._gate = gate
        self._text_threads = text_threads

    async def Generate(self, request: pb.GenerateRequest, context: _Context) -> pb.GenerateResponse:
        generation_request = await self._translated(request)
        response = ResponseBuilder(generation_request)
        with self._start(generation_request) as events:
            async for event in events:
                await off_loop_if_large(response.add, event)
        return response.build()

    async def GenerateStream(  # type: ignore[override]  # the bytes of GenerateStreamResponse
        self, request: pb.GenerateRequest, context: _Context
    ) -> AsyncIterator[bytes]:
        generation_request = await self._translated(request)
        encode = EventEncoder(generation_request.request_id).encode
        wakeup = Wakeup()
        with self._open(generation_request, wakeup.set) as run:
            while not run.finished:
                await wakeup.wait()
                for event in run.take():
                    yield encode(event) if is_small(event) else await asyncio.to_thread(encode, event)

    async def Tokenize(self, request: pb.TokenizeRequest, context: _Context) -> pb.TokenizeResponse:
        return await self._off_loop_if_long(tokenize, request, self._gate.enter().model)

    async def Detokenize(self, request: pb.DetokenizeRequest, context: _Context) -> pb.DetokenizeResponse:
        return await self._off_loop_if_long(detokenize, request, self._gate.enter().model)

    GenerateMultiplexed = not_built("GenerateMultiplexed")

    async def Embed(self, request: pb.EmbedRequest, context: _Context) -> pb.EmbedResponse:
        backend = self._gate.enter()
        backend.generator.check_room(1)
        embedding_request = await self._off_loop_if_long(translate_embed, request, backend.model)
        await backend.engine.check_task(EMBED_TASK)
        with self._gate.enter().generator.start_embedding(embedding_request) as events:
            async for embedded in events:
                return pb.EmbedResponse(embedding=embedded.vector, num_prompt_tokens=embedded.num_prompt_tokens)
        raise AssertionError("an embedding is one event or an error")

    def _open(
        self, request: GenerationRequest, on_arrival: Callable[[bool], None]
    ) -> AbstractContextManager[Run[Event]]:
        backend = self._gate.enter()
        backend.adapters.check_loaded(request.lora)
        return backend.generator.open(request, on_arrival)

    def _start(self, request: GenerationRequest) -> AbstractContextManager[AsyncIterator[Event]]:
        backend = self._gate.enter()
        backend.adapters.check_loaded(request.lora)
        return backend.generator.start(request)

    async def _translated(self, request: pb.GenerateRequest) -> GenerationRequest:
        """``start`` checks the room again; a full queue should not have to read a long text first."""
        backend = self._gate.enter()
        backend.generator.check_room(1)
        return await self._off_loop_if_long(translate, request, backend.model)

    async def _off_loop_if_long(
        self, work: Callable[[_Request, ServedModel], _Result], request: _Request, model: ServedModel
    ) -> _Result:
        num_bytes = request.ByteSize()
        if num_bytes < _INLINE_BELOW_BYTES:
            return work(request, model)
        return await self._text_threads.run(num_bytes, work, request, model)
