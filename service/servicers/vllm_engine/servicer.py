"""vllm.grpc.engine.VllmEngine: what routers call."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from grpc.aio import ServicerContext
from smg_grpc_proto.generated import common_pb2
from smg_grpc_proto.generated import vllm_engine_pb2 as pb
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineServicer as Contract

from core.wire.pooling_params import EMBED_TASK
from core.wire.sampling_params import Violation
from service.cores.engine import why_unavailable
from service.cores.engine_control import EngineControl
from service.embedding import EmbeddingRequest
from service.errors import InvalidRequest, OutOfRange, ServiceError, Unavailable, shown
from service.gate import Gate
from service.generation_request import GenerationRequest
from service.generator import AbortElsewhere, nobody_aborts
from service.kv_events.feed import KvEventFeed, followed
from service.security.caller import check_is_no_client
from service.servicers.health import Health
from service.servicers.intake import Intake
from service.servicers.responses import off_loop_if_large
from service.servicers.vllm_engine.arrivals import Arrivals
from service.servicers.vllm_engine.cache_flush import flush_cache
from service.servicers.vllm_engine.kv_event_batches import KvEventBatches
from service.servicers.vllm_engine.load_records import TICK_S, CoreLoads, LoadRecords
from service.servicers.vllm_engine.loads import scheduler_load
from service.servicers.vllm_engine.model_info import ModelCard
from service.servicers.vllm_engine.requests import to_embedding_request, to_generation_request
from service.servicers.vllm_engine.responses import GenerateResponses
from service.servicers.vllm_engine.server_info import server_info
from service.servicers.vllm_engine.statuses import as_routers_expect
from service.servicers.vllm_engine.tokenizer_archive import TokenizerArchive
from service.text.text_threads import TextThreads
from service.translate import read_request_ids
from service.wakeup import Wakeup

logger = logging.getLogger(__name__)

_Context = ServicerContext[Any, Any]
_INLINE_TEXT_BELOW_BYTES = 4096
_INLINE_BELOW_BYTES = 32768
"""Smaller requests are read on the event loop, within a millisecond or two: tokens need less of it than a text."""
_PAUSE_QUESTION_TIMEOUT_S = 1.0
_HEALTHY = "Health"
"""What the servers of this contract say."""
_LAUNCH_OPTION = "must be unset: the profiler has its folder and options from the engine's launch"


class VllmEngineServicer(Contract):
    """Requests run beside those of sluicegate.v1, in one table: an id is taken for both."""

    def __init__(
        self,
        gate: Gate,
        health: Health,
        text_threads: TextThreads,
        model: ModelCard,
        *,
        has_own_cores: bool = False,
        min_flush_interval_s: float = 0.0,
        abort_elsewhere: AbortElsewhere = nobody_aborts,
        kv_events: KvEventFeed | None = None,
    ) -> None:
        """``has_own_cores``: started by this gateway, and of this project.

        ``min_flush_interval_s``: chunks of a stream are sent no oftener, but for the first and the last.
        """
        self._abort_elsewhere = abort_elsewhere
        self._gate = gate
        self._health = health
        self._engine = EngineControl(gate)
        self._intake = Intake(gate, text_threads)
        self._model = model
        self._has_own_cores = has_own_cores
        self._min_flush_interval_s = min_flush_interval_s
        self._kv_events = kv_events
        self._tokenizer = TokenizerArchive(model.tokenizer_folder)
        self._arrivals = Arrivals()

    async def Generate(self, request: pb.GenerateRequest, context: _Context) -> AsyncIterator[bytes]:
        """The messages are GenerateResponse, as bytes."""
        with as_routers_expect():
            with self._arrivals.one(request.request_id) as arrival:
                generation_request = await self._read_generation(request)
            responses = GenerateResponses(generation_request, request.stream)
            if arrival.is_aborted:
                for message in responses.aborted():
                    yield message
                return
            wakeup = Wakeup(self._min_flush_interval_s)
            with self._intake.open(generation_request, wakeup.set) as run:
                while not run.finished:
                    await wakeup.wait()
                    for event in run.take():
                        for message in await off_loop_if_large(responses.of, event):
                            yield message

    async def Embed(self, request: pb.EmbedRequest, context: _Context) -> pb.EmbedResponse:
        with as_routers_expect():
            with self._arrivals.one(request.request_id) as arrival:
                embedding_request = await self._read_embedding(request)
            if arrival.is_aborted:
                raise Unavailable(f"request {shown(request.request_id)} was aborted", reason="ABORTED")
            with self._gate.enter().generator.start_embedding(embedding_request) as events:
                async for embedded in events:
                    vector, num_prompt_tokens = embedded.vector, embedded.num_prompt_tokens
                    size = len(vector)
                    return pb.EmbedResponse(embedding=vector, prompt_tokens=num_prompt_tokens, embedding_dim=size)
        raise AssertionError("an embedding is one event or an error")

    async def HealthCheck(self, request: pb.HealthCheckRequest, context: _Context) -> pb.HealthCheckResponse:
        healthy = self._health.is_serving
        return pb.HealthCheckResponse(healthy=healthy, message=_HEALTHY if healthy else self._why_unhealthy())

    async def FlushCache(
        self, request: common_pb2.FlushCacheRequest, context: _Context
    ) -> common_pb2.FlushCacheResponse:
        _take_order("FlushCache", context)
        return await flush_cache(self._engine, request.timeout_s)

    async def StartProfile(
        self, request: common_pb2.StartProfileRequest, context: _Context
    ) -> common_pb2.ProfileResponse:
        if options := [Violation(field.name, _LAUNCH_OPTION) for field, _ in request.ListFields()]:
            raise InvalidRequest(options)
        _take_order("StartProfile", context)
        await self._engine.call("profile", True, None)
        return common_pb2.ProfileResponse(success=True, message="profiling")

    async def StopProfile(
        self, request: common_pb2.StopProfileRequest, context: _Context
    ) -> common_pb2.ProfileResponse:
        _take_order("StopProfile", context)
        await self._engine.call("profile", False, None)
        return common_pb2.ProfileResponse(success=True, message="profiled")

    async def Abort(self, request: pb.AbortRequest, context: _Context) -> pb.AbortResponse:
        request_ids = read_request_ids(request.request_ids)
        self._arrivals.abort(request_ids)
        with suppress(Unavailable):  # nothing runs before there is a core
            self._gate.look_in().generator.abort(request_ids)
            await self._abort_elsewhere(request_ids)
        return pb.AbortResponse()

    async def GetModelInfo(self, request: pb.GetModelInfoRequest, context: _Context) -> pb.GetModelInfoResponse:
        return self._model.info(self._gate.look_in().model)

    async def GetServerInfo(self, request: pb.GetServerInfoRequest, context: _Context) -> pb.GetServerInfoResponse:
        backend = self._gate.look_in()
        return server_info(backend, await self._is_paused(), self._has_own_cores)

    async def GetLoads(self, request: pb.GetLoadsRequest, context: _Context) -> pb.GetLoadsResponse:
        backend = self._gate.look_in()
        loads = [scheduler_load(backend, engine) for engine in backend.engine.engines.all]
        if request.HasField("dp_rank"):
            loads = [_at_rank(request.dp_rank, loads)]
        return pb.GetLoadsResponse(
            timestamp=datetime.now(UTC).isoformat(),
            version=backend.engine_info.vllm_version,
            dp_rank_count=len(loads),
            loads=loads,
        )

    async def GetTokenizer(
        self, request: common_pb2.GetTokenizerRequest, context: _Context
    ) -> AsyncIterator[common_pb2.GetTokenizerChunk]:
        for chunk in await self._tokenizer.chunks():
            yield chunk

    async def SubscribeKvEvents(
        self, request: common_pb2.SubscribeKvEventsRequest, context: _Context
    ) -> AsyncIterator[common_pb2.KvEventBatch]:
        check_is_no_client("SubscribeKvEvents")
        feed = followed(self._kv_events)
        if request.start_sequence_number:
            raise OutOfRange("start_sequence_number: must be 0, each core counts by itself", reason="NOT_KEPT")
        backend = self._gate.look_in()
        ranks = range(len(backend.engine.engines.all)) if request.load_records_before_first_batch else ()
        batches, records = KvEventBatches(), LoadRecords(CoreLoads(backend), ranks)
        with feed.subscribe() as subscription:
            await context.send_initial_metadata(())  # From here on nothing is missed.
            while not subscription.has_ended:
                if (item := await subscription.next_within(TICK_S)) is not None:
                    yield records.stamp(batches.of(item))
                for record in records.due():
                    yield record

    async def _read_generation(self, request: pb.GenerateRequest) -> GenerationRequest:
        is_text = request.WhichOneof("input") == "text"
        inline_below = _INLINE_TEXT_BELOW_BYTES if is_text else _INLINE_BELOW_BYTES
        model = self._intake.enter().model
        return await self._intake.off_loop_if_long(to_generation_request, request, model, inline_below)

    async def _read_embedding(self, request: pb.EmbedRequest) -> EmbeddingRequest:
        backend = self._intake.enter()
        read = self._intake.off_loop_if_long(to_embedding_request, request, backend.model, _INLINE_BELOW_BYTES)
        embedding_request = await read
        await backend.engine.check_task(EMBED_TASK)
        return embedding_request

    def _why_unhealthy(self) -> str:
        try:
            engines = self._gate.enter().engine.engines
        except Unavailable as error:
            return error.message
        return why_unavailable(engines.all).message if not engines.are_serving else "the engine is asleep"

    async def _is_paused(self) -> bool:
        """A core that does not answer at once is at work."""
        with suppress(TimeoutError, ServiceError):
            async with asyncio.timeout(_PAUSE_QUESTION_TIMEOUT_S):
                return bool(await self._engine.call("is_scheduler_paused"))
        return False


def _at_rank(rank: int, loads: list[pb.SchedulerLoad]) -> pb.SchedulerLoad:
    if not 0 <= rank < len(loads):
        raise InvalidRequest([Violation("dp_rank", f"must be in [0, {len(loads) - 1}], got {rank}")])
    return loads[rank]


def _take_order(method: str, context: _Context) -> None:
    """What is done to the engine is in the log, with who asked for it. Raises PermissionDenied for a client's key."""
    check_is_no_client(method)
    logger.info("%s from %s", method, context.peer())
