"""What is asked of the cores: requests, whose outputs go to streams, and calls, which wait for their answers.

    add ──▶ LoadBalancer: which rank? ──▶ Engines ──▶ core r
    OutputStream ◀── take ◀── Engines ◀── any core     ``take`` is the only one to put into a stream
    UtilityCalls ◀──┘
    add ──▶ WaveClient        of cores that step in lockstep: some of them may rest

    core r is gone ──▶ its calls wait ──▶ another rank, or the core that comes in its place: each goes on where it was
    add, and no core is there ──▶ the call waits for a while ──▶ as above

Everything runs on the event loop. Sending is synchronous on purpose: a request cannot be cancelled half submitted.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from core.wire.messages import (
    REFUSED,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
    RequestType,
    UtilityCall,
)
from core.wire.version import shaped_request
from service.engine import Engine, max_num_tokens
from service.engines import Engines, why_unavailable
from service.errors import Internal, Unavailable, Unimplemented
from service.live_call import LiveCall, LiveRequest
from service.load_balancer import LoadBalancer
from service.metrics.requests import RequestMetrics
from service.output_stream import OutputStream
from service.prefix_memory import PrefixMemory
from service.resume import NotResumableError
from service.suspects import TRIAL_TIMEOUT_S, Suspects
from service.utility_calls import UtilityCalls, agreed
from service.waiting_calls import WaitingCalls
from service.wave_client import WaveClient

logger = logging.getLogger(__name__)

_EMPTIES_CACHES = "reset_prefix_cache"
"""What is remembered of prefixes is then no longer so."""


class EngineClient:
    """Sends requests to ``engines`` and hands their outputs to the streams.

    What waits for a core that is gone for good raises Unavailable; what other cores do goes on.
    """

    def __init__(self, engines: Engines, waves: WaveClient | None = None, restart_wait_s: float = 0.0) -> None:
        """``waves``: of engines that step in lockstep. ``restart_wait_s``: how long new requests wait for a core."""
        self.engines = engines
        self._waves = waves
        self._restart_wait_s = restart_wait_s
        self.requests = RequestMetrics()
        self.num_coalesced_outputs = 0
        """Outputs that were merged with one that its caller had not taken yet."""
        self.ends_strangers = False
        """Whether requests that nobody here knows are aborted: those of a process whose place this one has taken."""
        self.num_resumed_requests = 0
        """Requests that have gone on in another core than the one that began them."""
        self.num_unresumable_requests = 0
        """Requests that ended with their core, though others could go on."""
        self._calls: dict[OutputStream, LiveCall] = {}
        self._requests: dict[str, LiveRequest] = {}
        """By the id under which they were added."""
        self._at_cores: dict[str, LiveRequest] = {}
        """By the id under which their core knows them."""
        self._waiting = WaitingCalls()
        self._suspects = Suspects()
        self._has_trial = False
        self._trial_timer: asyncio.TimerHandle | None = None
        self._utility_calls = UtilityCalls()
        self._balancer: LoadBalancer | None = None
        self._tasks: frozenset[str] | None = None
        engines.serve(self)

    def __repr__(self) -> str:
        counts = f"{len(self._requests)} requests, {len(self._waiting)} calls waiting"
        return f"EngineClient({self.engines}, {counts}, {len(self._utility_calls)} utility calls)"

    @property
    def num_requests(self) -> int:
        """Requests in the table, finished ones included until their caller closes."""
        return len(self._requests)

    def num_requests_at(self, rank: int) -> int:
        """Requests at one core, or waiting for it, that have not ended."""
        return sum(len(call.stream.unfinished) for call in self._calls_at(rank))

    def add(
        self,
        requests: Sequence[EngineCoreRequest],
        on_arrival: Callable[[bool], None] | None = None,
        *,
        may_differ: bool = False,
    ) -> OutputStream:
        """Submit ``requests``, of one prompt, to one core; their outputs all come through the stream returned.

        If the core goes, another goes on with them, with the same tokens unless they ``may_differ``. ``on_arrival`` is
        the stream's. The caller must close it. Raises Unavailable if there is no core to take them, nor soon will be.
        """
        ids, rank = (request.request_id for request in requests), requests[0].data_parallel_rank or 0
        stream = OutputStream(ids, rank, on_arrival)
        call = self._calls[stream] = LiveCall(stream, requests, may_differ=may_differ)
        self._requests |= {live.core_id: live for live in call.requests}
        try:
            self._submit_or_wait(call)
        except BaseException:
            self.close_stream(stream)
            raise
        self.requests.add(requests, stream.rank)
        return stream

    def abort(self, request_ids: Iterable[str]) -> None:
        """End live requests here and in the core: their streams get a last output, ABORT. Unknown ids are ignored."""
        ended: dict[int, list[LiveRequest]] = {}
        for request_id in request_ids:
            live = self._requests.get(request_id)
            if live is not None and request_id in live.call.stream.unfinished:
                live.call.stream.put(EngineCoreOutput(request_id, [], finish_reason=FinishReason.ABORT))
                ended.setdefault(live.call.stream.rank, []).append(live)
        for rank, lives in ended.items():
            self.requests.end([live.request.request_id for live in lives], FinishReason.ABORT)
            self._send_abort(rank, lives)

    def stop(self, stream: OutputStream, request_id: str, reason: FinishReason) -> None:
        """For the caller ``request_id`` has ended: the core need not go on with it."""
        stream.finish(request_id)
        self.requests.end([request_id], reason)
        self._send_abort(stream.rank, [self._requests[request_id]])

    def close_stream(self, stream: OutputStream, reason: FinishReason = FinishReason.ABORT) -> None:
        """Forget the requests of ``stream`` and abort those that have not ended, which ``reason`` ends.

        Never raises; may be called twice.
        """
        self.requests.end(stream.request_ids, reason)
        if (call := self._calls.pop(stream, None)) is None:
            return
        self._send_abort(stream.rank, sorted(call.unfinished, key=lambda live: live.core_id))
        self._waiting.discard(call)
        for live in call.requests:
            del self._requests[live.request.request_id]
            self._at_cores.pop(live.core_id, None)
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
        engine = self.engines.all[rank]
        if not engine.answers:
            raise why_unavailable([engine])
        with self._utility_calls.one(rank) as (call_id, answer):
            call = UtilityCall(self.engines.client_index, call_id, method, list(args))
            self.engines.send(engine, RequestType.UTILITY, call)
            return await answer

    def take(self, outputs: EngineCoreOutputs, broken_ids: list[str]) -> None:
        """Hand one message's outputs to their streams. Requests of ``broken_ids`` end as ERROR."""
        for request_id in broken_ids:
            self._fail_broken(request_id)
        for output in outputs.outputs:
            if (live := self._at_cores.get(output.request_id)) is None:
                self._take_of_stranger(output, outputs.engine_index)
                continue
            if live.is_resumed and self._take_of_resumed(live, output):
                continue
            live.token_ids += output.new_token_ids
            self.num_coalesced_outputs += live.call.stream.put(output)
        if outputs.utility_output is not None:
            self._utility_calls.resolve(outputs.utility_output)
        self.requests.record(outputs)
        if self._has_trial:
            self._place_waiting()

    def _take_of_stranger(self, output: EngineCoreOutput, rank: int) -> None:
        if self.ends_strangers and not output.finished:
            self._send_abort_of(rank, [output.request_id])

    def engine_is_gone(self, engine: Engine, error: Unavailable) -> None:
        """End everything that waits for ``engine``, unless another goes on with it."""
        self._utility_calls.fail(engine.rank, error)
        if self._balancer is not None:
            self._balancer.forget(engine.rank)
        lost = [call for call in self._calls_at(engine.rank) if call not in self._waiting and call.stream.unfinished]
        if not engine.is_awaited:
            for call in [*lost, *self._waiting]:
                if call in lost or self._has_no_hope(call):
                    self._waiting.discard(call)
                    call.stream.fail(error)
            return
        guilty = self._suspects.judge(lost)
        for call in lost:
            self._take_back(call)
        if guilty is not None:
            self._convict(guilty)
        self._place_waiting()

    def engine_is_back(self, engine: Engine) -> None:
        """Let it go on with what its predecessor had."""
        self.engines.note_settled(engine)
        self._place_waiting()

    def engine_is_silent(self, engine: Engine, error: Unavailable) -> None:
        """Streams wait until it speaks again or their clients give up; calls can be made again."""
        self._utility_calls.fail(engine.rank, error)

    def _choose(self, request: EngineCoreRequest) -> Engine | None:
        """None: there soon will be one. Raises Unavailable if the core that the request names, or every one, is not
        there, nor will be in time.
        """
        pinned = request.data_parallel_rank
        engines = self.engines.all if pinned is None else [self.engines.all[pinned]]
        loads = {engine.rank: engine.load for engine in self.engines.all if engine.takes_requests}
        if not any(engine.rank in loads for engine in engines):
            if self._waits_for_cores and any(engine.is_awaited or engine.is_settling for engine in engines):
                return None
            raise why_unavailable(engines)
        prompt = request.prompt_token_ids or ()
        lora = request.lora_request
        salt = request.cache_salt if lora is None else (request.cache_salt, lora.lora_int_id)
        return self.engines.all[self._balance().choose(loads, prompt, salt, pinned)]

    def _balance(self) -> LoadBalancer:
        """Made with the first request: now the size of a block is known."""
        if self._balancer is None:
            response = self.engines.all[0].response
            assert response is not None, "some core answers, so all have been ready"
            self._balancer = LoadBalancer(len(self.engines.all), PrefixMemory(response.block_size))
        return self._balancer

    def _submit_or_wait(self, call: LiveCall) -> None:
        """Of a new call. Raises Unavailable if there is nobody to wait for."""
        engine = self._choose(call.requests[0].request)
        if engine is not None:
            try:
                self._submit(call, engine)
            except Unavailable:  # It has just gone, which will be noticed in a moment.
                if not self._waits_for_cores:
                    raise
            else:
                return
        self._waiting.add_for(self._restart_wait_s, call, self._refuse_to_wait)

    @property
    def _waits_for_cores(self) -> bool:
        return self.engines.awaits_successors and self._restart_wait_s > 0

    def _submit(self, call: LiveCall, engine: Engine) -> None:
        """Raises Unavailable if the core has just gone, NotResumableError if it cannot go on with ``call``."""
        assert engine.response is not None, "it takes requests"
        call.stream.rank = engine.rank
        for live, request in call.submissions(engine.response):
            self._at_cores.pop(live.core_id, None)
            live.core_id = request.request_id
            self._at_cores[live.core_id] = live
            self._send_request(engine, request)

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

    def _take_back(self, call: LiveCall) -> None:
        """No core has ``call`` any more: what one may still say of it is not heard."""
        for live in call.requests:
            self._at_cores.pop(live.core_id, None)
        self._waiting.add(call)

    def _place_waiting(self) -> None:
        """Send what waits to the cores that are there; what may have ended the last one is tried by and by."""
        if not self.engines.are_serving:
            return
        for call in self._suspects.admitted(self._waiting):
            self._place(call)
        self._has_trial = self._suspects.has_more(self._waiting)
        if self._has_trial and self._trial_timer is None:
            self._trial_timer = asyncio.get_running_loop().call_later(TRIAL_TIMEOUT_S, self._end_trial)

    def _end_trial(self) -> None:
        self._trial_timer = None
        self._place_waiting()

    def _place(self, call: LiveCall) -> None:
        """``call`` waits on if no core takes it."""
        try:
            engine = self._choose(call.requests[0].request)
            if engine is None:
                return
            self._check_room(call, engine)
            was_begun = call.num_submissions > 0
            self._submit(call, engine)
        except Unavailable:
            return
        except NotResumableError as error:
            self._fail_unresumable(call, str(error))
        else:
            self.num_resumed_requests += len(call.stream.unfinished) if was_begun else 0
            self._waiting.discard(call)

    def _check_room(self, call: LiveCall, engine: Engine) -> None:
        """Raises NotResumableError: a core that could go on would end it at once, or has no place for its prompt."""
        assert engine.response is not None, "it takes requests"
        if call.num_submissions and call.num_tokens >= (bound := max_num_tokens(engine.response)):
            raise NotResumableError(f"its {call.num_tokens} tokens are too many for a core with room for {bound}")

    def _fail_unresumable(self, call: LiveCall, why: str) -> None:
        logger.warning("request %s could not go on in another core: %s", call.name, why)
        self.num_unresumable_requests += len(call.stream.unfinished)
        self._drop(call, Unavailable(f"the engine core is gone, and another cannot go on: {why}", reason="CORE_LOST"))

    def _convict(self, call: LiveCall) -> None:
        logger.error("request %s is ended: %d cores have ended while they began it", call.name, call.num_strikes)
        self.num_unresumable_requests += len(call.stream.unfinished)
        cause = f"{call.num_strikes} cores ended while they had it, and had given it nothing"
        self._drop(call, Internal("the engine core does not survive the request", reason="ENDS_THE_CORE", cause=cause))

    def _drop(self, call: LiveCall, error: Exception) -> None:
        self._waiting.discard(call)
        call.stream.fail(error)

    def _refuse_to_wait(self, call: LiveCall) -> None:
        """A new call has waited as long as new calls may."""
        pinned = call.pinned_rank
        call.stream.fail(why_unavailable(self.engines.all if pinned is None else [self.engines.all[pinned]]))

    def _has_no_hope(self, call: LiveCall) -> bool:
        """No core that may have it is there, nor is to come."""
        pinned = call.pinned_rank
        engines = self.engines.all if pinned is None else [self.engines.all[pinned]]
        return not any(engine.is_alive or engine.is_awaited for engine in engines)

    def _take_of_resumed(self, live: LiveRequest, output: EngineCoreOutput) -> bool:
        """Make ``output`` one of the first core. True: it was a refusal, and nothing that its caller could correct."""
        live.disguise(output)
        is_refusal = isinstance(output.stop_reason, str) and output.stop_reason.startswith(REFUSED)
        if output.finish_reason is FinishReason.ERROR and is_refusal and live.token_ids:
            self._fail_unresumable(live.call, str(output.stop_reason))
            return True
        return False

    def _fail_broken(self, core_id: str) -> None:
        if (live := self._at_cores.get(core_id)) is None:
            return
        self._send_abort(live.call.stream.rank, [live])
        request_id = live.request.request_id
        self.requests.end([request_id], FinishReason.ERROR)
        cause = "the core sent an undecodable output"
        live.call.stream.put(EngineCoreOutput(request_id, [], finish_reason=FinishReason.ERROR, stop_reason=cause))

    def _send_abort(self, rank: int, requests: Iterable[LiveRequest]) -> None:
        """A core that is gone has nothing to abort."""
        self._send_abort_of(rank, [live.core_id for live in requests if live.core_id in self._at_cores])

    def _send_abort_of(self, rank: int, core_ids: list[str]) -> None:
        if core_ids:
            with contextlib.suppress(Unavailable):
                self.engines.send(self.engines.all[rank], RequestType.ABORT, core_ids)

    def _calls_at(self, rank: int) -> list[LiveCall]:
        return [call for call in self._calls.values() if call.stream.rank == rank]
