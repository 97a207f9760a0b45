"""What is asked of the cores: requests, whose outputs go to streams, and calls, which wait for their answers.

    add ──▶ LoadBalancer: which rank? ──▶ Engines ──▶ core r
    OutputStream ◀── take ◀── Engines ◀── any core     ``take`` is the only one to put into a stream
    UtilityCalls ◀──┘
    add ──▶ WaveClient        of cores that step in lockstep: some of them may rest

Everything runs on the event loop. Sending is synchronous on purpose: a request cannot be cancelled half submitted.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from core.wire.messages import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
    RequestType,
    UtilityCall,
)
from core.wire.version import shaped_request
from service.engine import Engine
from service.engines import Engines, why_unavailable
from service.errors import Unavailable, Unimplemented
from service.load_balancer import LoadBalancer
from service.metrics.requests import RequestMetrics
from service.output_stream import OutputStream
from service.prefix_memory import PrefixMemory
from service.utility_calls import UtilityCalls, agreed
from service.wave_client import WaveClient

_EMPTIES_CACHES = "reset_prefix_cache"
"""What is remembered of prefixes is then no longer so."""


class EngineClient:
    """Sends requests to ``engines`` and hands their outputs to the streams.

    What waits for a core that is gone raises Unavailable; what other cores do goes on.
    """

    def __init__(self, engines: Engines, waves: WaveClient | None = None) -> None:
        """``waves``: of engines that step in lockstep."""
        self.engines = engines
        self._waves = waves
        self.requests = RequestMetrics()
        self.num_coalesced_outputs = 0
        """Outputs that were merged with one that its caller had not taken yet."""
        self._streams: dict[str, OutputStream] = {}
        self._utility_calls = UtilityCalls()
        self._balancer: LoadBalancer | None = None
        self._tasks: frozenset[str] | None = None
        engines.serve(self)

    def __repr__(self) -> str:
        return f"EngineClient({self.engines}, {len(self._streams)} requests, {len(self._utility_calls)} utility calls)"

    @property
    def num_requests(self) -> int:
        """Requests in the stream table, finished ones included until their caller closes."""
        return len(self._streams)

    def num_requests_at(self, rank: int) -> int:
        """Requests at one core that have not ended."""
        return sum(len(stream.unfinished) for stream in self._streams_at(rank))

    def add(
        self, requests: Sequence[EngineCoreRequest], on_arrival: Callable[[bool], None] | None = None
    ) -> OutputStream:
        """Submit ``requests``, of one prompt, to one core; their outputs all come through the stream returned.

        ``on_arrival`` is the stream's.
        The caller must close it. Raises Unavailable if there is no core to take them.
        """
        engine = self._choose(requests[0])
        stream = OutputStream((request.request_id for request in requests), engine.rank, on_arrival)
        try:
            for request in requests:
                self._streams[request.request_id] = stream
                self._send_request(engine, request)
        except BaseException:
            self.close_stream(stream)
            raise
        self.requests.add(requests, engine.rank)
        return stream

    def abort(self, request_ids: Sequence[str]) -> None:
        """End live requests here and in the core: their streams get a last output, ABORT. Unknown ids are ignored."""
        live: dict[int, list[str]] = {}
        for request_id in request_ids:
            if (stream := self._streams.get(request_id)) is not None and request_id in stream.unfinished:
                stream.put(EngineCoreOutput(request_id, [], finish_reason=FinishReason.ABORT))
                live.setdefault(stream.rank, []).append(request_id)
        for rank, ids in live.items():
            self.requests.end(ids, FinishReason.ABORT)
            self._send_abort(rank, ids)

    def stop(self, stream: OutputStream, request_id: str, reason: FinishReason) -> None:
        """For the caller ``request_id`` has ended: the core need not go on with it."""
        stream.finish(request_id)
        self.requests.end([request_id], reason)
        self._send_abort(stream.rank, [request_id])

    def close_stream(self, stream: OutputStream, reason: FinishReason = FinishReason.ABORT) -> None:
        """Forget the requests of ``stream`` and abort those that have not ended, which ``reason`` ends.

        Never raises; may be called twice.
        """
        self.requests.end(stream.request_ids, reason)
        for request_id in stream.request_ids:
            self._streams.pop(request_id, None)
        self._send_abort(stream.rank, sorted(stream.unfinished))
        stream.unfinished.clear()

    async def call_utility(self, method: str, *args: Any) -> Any:
        """Call ``method`` on every core, and answer as ``agreed`` when all have.

        Raises UtilityError with a core's message, and Unavailable at once if a core is lost or silent, or becomes so.
        """
        try:
            async with asyncio.TaskGroup() as group:
                calls = [group.create_task(self.call_rank(engine.rank, method, *args)) for engine in self.engines.all]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        if method == _EMPTIES_CACHES:
            self._balancer = None
        return agreed(method, [call.result() for call in calls])

    async def check_task(self, task: str) -> None:
        """Raises Unimplemented if the cores say, once, that they cannot: some do not survive being told to even so.

        Raises as ``call_utility``, too.
        """
        if self._tasks is None:
            self._tasks = frozenset(await self.call_utility("get_supported_tasks"))
        if task not in self._tasks:
            can = ", ".join(sorted(map(str, self._tasks)))
            raise Unimplemented(f"the model cannot {task}, it can: {can}", reason=f"MODEL_CANNOT_{task.upper()}")

    async def call_rank(self, rank: int, method: str, *args: Any) -> Any:
        """Call ``method`` on one core. Raises as ``call_utility``."""
        engine = _answering(self.engines.all[rank])
        with self._utility_calls.one(rank) as (call_id, answer):
            call = UtilityCall(self.engines.client_index, call_id, method, list(args))
            self.engines.send(engine, RequestType.UTILITY, call)
            return await answer

    def take(self, outputs: EngineCoreOutputs, broken_ids: list[str]) -> None:
        """Hand one message's outputs to their streams. Requests of ``broken_ids`` end as ERROR."""
        for request_id in broken_ids:
            self._fail_broken(request_id)
        for output in outputs.outputs:
            if (stream := self._streams.get(output.request_id)) is not None:
                self.num_coalesced_outputs += stream.put(output)
        if outputs.utility_output is not None:
            self._utility_calls.resolve(outputs.utility_output)
        self.requests.record(outputs)

    def engine_is_gone(self, engine: Engine, error: Unavailable) -> None:
        """End everything that waits for ``engine``. Another core may stand in its place already: it knows nothing."""
        for stream in self._streams_at(engine.rank):
            stream.fail(error)
        self._utility_calls.fail(engine.rank, error)
        if self._balancer is not None:
            self._balancer.forget(engine.rank)

    def engine_is_silent(self, engine: Engine, error: Unavailable) -> None:
        """Streams wait until it speaks again or their clients give up; calls can be made again."""
        self._utility_calls.fail(engine.rank, error)

    def _choose(self, request: EngineCoreRequest) -> Engine:
        """Raises Unavailable if the core that the request names does not answer, or none does."""
        engines = self.engines.all
        pinned = request.data_parallel_rank
        if pinned is not None:
            _answering(engines[pinned])
        loads = {engine.rank: engine.load for engine in engines if engine.answers}
        if not loads:
            raise why_unavailable(engines)
        prompt = request.prompt_token_ids or ()
        lora = request.lora_request
        salt = request.cache_salt if lora is None else (request.cache_salt, lora.lora_int_id)
        return engines[self._balance().choose(loads, prompt, salt, pinned)]

    def _balance(self) -> LoadBalancer:
        """Made with the first request: now the size of a block is known."""
        if self._balancer is None:
            response = self.engines.all[0].response
            assert response is not None, "some core answers, so all have been ready"
            self._balancer = LoadBalancer(len(self.engines.all), PrefixMemory(response.block_size))
        return self._balancer

    def _send_request(self, engine: Engine, request: EngineCoreRequest) -> None:
        request.client_index = self.engines.client_index
        if self._waves is not None:
            request.current_wave = self._waves.wave
        self.engines.send(engine, RequestType.ADD, self._shaped(request))
        engine.num_sent_since_stats += 1
        if self._waves is not None:
            self._waves.note_request(engine.identity)

    def _shaped(self, request: EngineCoreRequest) -> object:
        assert self.engines.wire_version is not None, "the core that was chosen is ready"
        return shaped_request(request, self.engines.wire_version)

    def _fail_broken(self, request_id: str) -> None:
        if (stream := self._streams.get(request_id)) is None:
            return
        self._send_abort(stream.rank, [request_id])
        self.requests.end([request_id], FinishReason.ERROR)
        cause = "the core sent an undecodable output"
        stream.put(EngineCoreOutput(request_id, [], finish_reason=FinishReason.ERROR, stop_reason=cause))

    def _send_abort(self, rank: int, request_ids: Sequence[str]) -> None:
        """A core that is gone has nothing to abort."""
        if request_ids:
            with contextlib.suppress(Unavailable):
                self.engines.send(self.engines.all[rank], RequestType.ABORT, list(request_ids))

    def _streams_at(self, rank: int) -> set[OutputStream]:
        return {stream for stream in self._streams.values() if stream.rank == rank}


def _answering(engine: Engine) -> Engine:
    """``engine``. Raises Unavailable if it does not answer."""
    if not engine.answers:
        raise why_unavailable([engine])
    return engine
