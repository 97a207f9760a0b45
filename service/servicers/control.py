"""sluicegate.v1.ControlService: what operators call."""

import asyncio
import functools
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.text_format import MessageToString
from google.protobuf.timestamp_pb2 import Timestamp
from grpc.aio import ServicerContext

from core.wire.sampling_params import Violation
from service.cores.adapters import Adapters
from service.cores.engine_control import EngineControl
from service.errors import InvalidRequest, shown
from service.gate import Backend, Gate
from service.kv_events.feed import KvEventFeed, followed
from service.servicers.kv_events import to_response
from service.servicers.load import load_of, with_loads_of_others
from service.to_the_end import ToTheEnd
from service.translate import read_request_ids
from service.workers.team import Team
from sluicegate.v1 import control_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import ControlServiceServicer

logger = logging.getLogger(__name__)

_Context = ServicerContext[Any, Any]
_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response")

_DEFAULT_WATCH_INTERVAL_S = 1.0
_WATCH_INTERVAL_BOUNDS_S = (0.1, 3600.0)
_DEFAULT_SLEEP_LEVEL = 1
_MAX_SLEEP_LEVEL = 2
_MAX_LOGGED_BYTES = 4096
_WAKE_TAGS = ("weights", "kv_cache", "scheduling")
_PROFILE_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}|")
_PAUSE_MODES = {
    pb.PAUSE_MODE_UNSPECIFIED: "abort",
    pb.PAUSE_MODE_ABORT: "abort",
    pb.PAUSE_MODE_WAIT: "wait",
    pb.PAUSE_MODE_KEEP: "keep",
}


def _logged(
    method: "Callable[[ControlServicer, _Request, _Context], Awaitable[_Response]]",
) -> "Callable[[ControlServicer, _Request, _Context], Awaitable[_Response]]":
    """What operators change is in the log, with who asked for it."""

    @functools.wraps(method)
    async def logged(self: "ControlServicer", request: _Request, context: _Context) -> _Response:
        num_bytes = request.ByteSize()
        is_short = num_bytes <= _MAX_LOGGED_BYTES
        asked_for = MessageToString(request, as_one_line=True).strip() if is_short else f"{num_bytes} bytes"
        logger.info("%s {%.200s} from %s", method.__name__, asked_for, context.peer())
        return await method(self, request, context)

    return logged


class ControlServicer(ControlServiceServicer):
    """``stopping`` is set when the server ends its last streams."""

    def __init__(
        self,
        gate: Gate,
        team: Team,
        grpc_addresses: Sequence[str],
        drain_timeout_s: float,
        stopping: asyncio.Event,
        kv_events: KvEventFeed | None = None,
    ) -> None:
        self._gate = gate
        self._team = team
        self._engine = EngineControl(gate)
        self.engine_state = self._engine.state
        self._work = ToTheEnd()
        self._grpc_addresses = grpc_addresses
        self._drain_timeout_s = drain_timeout_s
        self._stopping = stopping
        self._kv_events = kv_events

    async def GetServerInfo(
        self,
        request: pb.GetServerInfoRequest,
        context: _Context,
    ) -> pb.GetServerInfoResponse:
        backend = self._gate.look_in()
        engine = backend.engine_info
        start_time = Timestamp()
        start_time.FromNanoseconds(round(backend.start_time * 1e9))
        return pb.GetServerInfoResponse(
            version=version("sluicegate"),
            engine_version=engine.vllm_version,
            start_time=start_time,
            model=backend.model.name,
            max_model_len=backend.model.max_model_len,
            max_logprobs=backend.model.max_logprobs,
            vocab_size=backend.model.vocab_size,
            dtype=engine.dtype,
            block_size=engine.block_size,
            num_kv_blocks=engine.num_gpu_blocks,
            data_parallel_size=engine.data_parallel_size,
            grpc_addresses=self._grpc_addresses,
            max_loras=engine.max_loras or 0,
            lora_names=sorted(backend.model.adapters),
        )

    async def ListModels(
        self,
        request: pb.ListModelsRequest,
        context: _Context,
    ) -> pb.ListModelsResponse:
        model = self._gate.look_in().model
        length = model.max_model_len
        cards = [pb.ModelCard(name=model.name, max_model_len=length)]
        cards += [pb.ModelCard(name=n, base_model=model.name, max_model_len=length) for n in sorted(model.adapters)]
        return pb.ListModelsResponse(models=cards)

    async def GetLoad(self, request: pb.GetLoadRequest, context: _Context) -> pb.GetLoadResponse:
        return pb.GetLoadResponse(load=await self._load(self._gate.look_in()))

    async def WatchLoad(
        self,
        request: pb.WatchLoadRequest,
        context: _Context,
    ) -> AsyncIterator[pb.WatchLoadResponse]:
        interval_s = _watch_interval_s(request)
        backend = self._gate.look_in()
        while not self._stopping.is_set():
            yield pb.WatchLoadResponse(load=await self._load(backend))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), interval_s)

    @_logged
    async def Abort(self, request: pb.AbortRequest, context: _Context) -> pb.AbortResponse:
        request_ids = read_request_ids(request.request_ids)
        num_aborted = self._gate.look_in().generator.abort(request_ids)
        return pb.AbortResponse(num_aborted=num_aborted + await self._team.abort(request_ids))

    @_logged
    async def Drain(self, request: pb.DrainRequest, context: _Context) -> pb.DrainResponse:
        self._gate.look_in()
        timeout_s = _seconds(request.timeout) if request.HasField("timeout") else self._drain_timeout_s
        if timeout_s < 0:
            raise InvalidRequest([Violation("timeout", f"must be at least 0 s, got {timeout_s:g} s")])
        drains = self._gate.drain(timeout_s), self._team.drain(timeout_s)
        return pb.DrainResponse(num_aborted=sum(await asyncio.gather(*drains)))

    @_logged
    async def ResetPrefixCache(
        self,
        request: pb.ResetPrefixCacheRequest,
        context: _Context,
    ) -> pb.ResetPrefixCacheResponse:
        success = await self._engine.call("reset_prefix_cache", request.reset_running_requests, False)
        await self._team.forget_prefixes()
        return pb.ResetPrefixCacheResponse(success=success)

    @_logged
    async def PauseGeneration(
        self,
        request: pb.PauseGenerationRequest,
        context: _Context,
    ) -> pb.PauseGenerationResponse:
        await self._engine.pause(_pause_mode(request.mode), request.clear_cache)
        return pb.PauseGenerationResponse()

    @_logged
    async def ResumeGeneration(
        self,
        request: pb.ResumeGenerationRequest,
        context: _Context,
    ) -> pb.ResumeGenerationResponse:
        await self._engine.resume()
        return pb.ResumeGenerationResponse()

    @_logged
    async def Sleep(self, request: pb.SleepRequest, context: _Context) -> pb.SleepResponse:
        level = request.level if request.HasField("level") else _DEFAULT_SLEEP_LEVEL
        if level > _MAX_SLEEP_LEVEL:
            raise InvalidRequest([Violation("level", f"must be in [0, {_MAX_SLEEP_LEVEL}], got {level}")])
        await self._engine.sleep(level, _pause_mode(request.mode))
        return pb.SleepResponse()

    @_logged
    async def WakeUp(self, request: pb.WakeUpRequest, context: _Context) -> pb.WakeUpResponse:
        for tag in request.tags:
            if tag not in _WAKE_TAGS:
                raise InvalidRequest([Violation("tags", f"must be of {', '.join(_WAKE_TAGS)}, got {shown(tag)}")])
        await self._engine.wake_up(request.tags)
        return pb.WakeUpResponse()

    @_logged
    async def StartProfile(self, request: pb.StartProfileRequest, context: _Context) -> pb.StartProfileResponse:
        if not _PROFILE_PREFIX.fullmatch(request.prefix):
            allowed = "at most 100 of A-Z a-z 0-9 . _ - and not begin with a dot"
            raise InvalidRequest([Violation("prefix", f"must be {allowed}, got {shown(request.prefix)}")])
        await self._engine.call("profile", True, request.prefix or None)
        return pb.StartProfileResponse()

    @_logged
    async def StopProfile(self, request: pb.StopProfileRequest, context: _Context) -> pb.StopProfileResponse:
        await self._engine.call("profile", False, None)
        return pb.StopProfileResponse()

    @_logged
    async def LoadLora(self, request: pb.LoadLoraRequest, context: _Context) -> pb.LoadLoraResponse:
        await self._work.run(self._load_adapter(self._gate.look_in().adapters, request))
        return pb.LoadLoraResponse()

    @_logged
    async def UnloadLora(self, request: pb.UnloadLoraRequest, context: _Context) -> pb.UnloadLoraResponse:
        await self._work.run(self._unload_adapter(self._gate.look_in().adapters, request.name))
        return pb.UnloadLoraResponse()

    async def ListLoras(self, request: pb.ListLorasRequest, context: _Context) -> pb.ListLorasResponse:
        loaded = sorted(self._gate.look_in().model.adapters.items())
        return pb.ListLorasResponse(loras=[pb.Lora(name=name, path=lora.lora_path) for name, lora in loaded])

    async def SubscribeKvEvents(
        self,
        request: pb.SubscribeKvEventsRequest,
        context: _Context,
    ) -> AsyncIterator[pb.SubscribeKvEventsResponse]:
        self._gate.look_in()
        feed = followed(self._kv_events)
        rank = request.data_parallel_rank if request.HasField("data_parallel_rank") else None
        with feed.subscribe(request.start_sequence_number, rank) as subscription:
            await context.send_initial_metadata(())  # From here on nothing is missed.
            while (item := await subscription.next()) is not None:
                yield to_response(item)

    async def _load(self, backend: Backend) -> pb.Load:
        others = [pb.Load.FromString(load) for load in await self._team.loads()]
        return with_loads_of_others(load_of(backend), others)

    async def _load_adapter(self, adapters: Adapters, request: pb.LoadLoraRequest) -> None:
        await adapters.load(request.name, request.path)
        await self._team.set_adapters(adapters.by_name.values())

    async def _unload_adapter(self, adapters: Adapters, name: str) -> None:
        unloading = asyncio.ensure_future(adapters.unload(name))
        await asyncio.sleep(0)  # Now it is no more in the table, or never was.
        await asyncio.gather(unloading, self._team.set_adapters(adapters.by_name.values()))


def _pause_mode(mode: "pb.PauseMode.ValueType") -> str:
    """As the core calls it."""
    if mode not in _PAUSE_MODES:
        raise InvalidRequest([Violation("mode", f"must be in [0, {max(_PAUSE_MODES)}], got {mode}")])
    return _PAUSE_MODES[mode]


def _watch_interval_s(request: pb.WatchLoadRequest) -> float:
    if not request.HasField("interval"):
        return _DEFAULT_WATCH_INTERVAL_S
    interval_s = _seconds(request.interval)
    low, high = _WATCH_INTERVAL_BOUNDS_S
    if not low <= interval_s <= high:
        raise InvalidRequest([Violation("interval", f"must be in [{low:g} s, {high:g} s], got {interval_s:g} s")])
    return interval_s


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
