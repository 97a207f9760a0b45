"""sluicegate.v1.InferenceService."""

from collections.abc import AsyncIterator
from typing import Any

from grpc.aio import ServicerContext

from core.wire.pooling_params import EMBED_TASK
from service.events import Delta
from service.gate import Gate
from service.servicers.event_encoder import EventEncoder
from service.servicers.intake import Intake
from service.servicers.multiplexed import MultiplexedSession
from service.servicers.responses import ResponseBuilder, off_loop_if_large
from service.servicers.usage_trailers import UsageTrailers
from service.text.text_threads import TextThreads
from service.translate import detokenize, tokenize, translate_embed
from service.wakeup import Wakeup
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceServicer

_Context = ServicerContext[Any, Any]


class InferenceServicer(InferenceServiceServicer):
    """Text generation, embedding and tokenization."""

    def __init__(self, gate: Gate, text_threads: TextThreads, min_flush_interval_s: float = 0.0) -> None:
        """``min_flush_interval_s``: deltas of a stream are sent no oftener, but for the first token and the end."""
        self._gate = gate
        self._intake = Intake(gate, text_threads)
        self._min_flush_interval_s = min_flush_interval_s

    async def Generate(self, request: pb.GenerateRequest, context: _Context) -> pb.GenerateResponse:
        generation_request = await self._intake.read(request)
        response, usage = ResponseBuilder(generation_request), UsageTrailers()
        with self._intake.start(generation_request) as events:
            async for event in events:
                usage.note(event)
                await off_loop_if_large(response.add, event)
        context.set_trailing_metadata(usage.metadata())
        return response.build()

    async def GenerateStream(  # type: ignore[override]  # the bytes of GenerateStreamResponse
        self, request: pb.GenerateRequest, context: _Context
    ) -> AsyncIterator[bytes]:
        generation_request = await self._intake.read(request)
        del request
        encoder, usage = EventEncoder(generation_request.request_id), UsageTrailers()
        wakeup = Wakeup(self._min_flush_interval_s)
        with self._intake.open(generation_request, wakeup.set) as run:
            while not run.finished:
                await wakeup.wait()
                for event in run.take():
                    if event.__class__ is Delta and event.logprobs is None:
                        yield encoder.encode_plain(event)
                        continue
                    usage.note(event)
                    if run.finished:  # Before the last message: gRPC may send its trailers along with it.
                        context.set_trailing_metadata(usage.metadata())
                    yield await off_loop_if_large(encoder.encode, event)

    def GenerateMultiplexed(  # type: ignore[override]  # the bytes of MultiplexedResponse
        self, request_iterator: AsyncIterator[pb.MultiplexedRequest], context: _Context
    ) -> AsyncIterator[bytes]:
        return MultiplexedSession(self._intake, self._min_flush_interval_s).responses(request_iterator)

    async def Tokenize(self, request: pb.TokenizeRequest, context: _Context) -> pb.TokenizeResponse:
        return await self._intake.off_loop_if_long(tokenize, request, self._gate.enter().model)

    async def Detokenize(self, request: pb.DetokenizeRequest, context: _Context) -> pb.DetokenizeResponse:
        return await self._intake.off_loop_if_long(detokenize, request, self._gate.enter().model)

    async def Embed(self, request: pb.EmbedRequest, context: _Context) -> pb.EmbedResponse:
        backend = self._intake.enter()
        embedding_request = await self._intake.off_loop_if_long(translate_embed, request, backend.model)
        await backend.engine.check_task(EMBED_TASK)
        with self._gate.enter().generator.start_embedding(embedding_request) as events:
            async for embedded in events:
                return pb.EmbedResponse(embedding=embedded.vector, num_prompt_tokens=embedded.num_prompt_tokens)
        raise AssertionError("an embedding is one event or an error")
