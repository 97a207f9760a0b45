"""What is asked of the cores: requests, whose outputs go to streams, and calls, which wait for their answers.

    add ──▶ Placement: which rank? ──▶ Engines ──▶ core r
    OutputStream ◀── take ◀── Engines ◀── any core     ``take`` is the only one to put into a stream
    UtilityCalls ◀──┘
    a core is gone ──▶ Resumption: its calls go on in another

Everything runs on the event loop. Sending is synchronous on purpose: a request cannot be cancelled half submitted.
"""

import asyncio
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
from service.admission.live_call import LiveCall, LiveRequest
from service.cores.core_aborts import CoreAborts
from service.cores.engine import Engine, why_unavailable
from service.cores.engines import QUESTION, Engines
from service.cores.placement import Placement
from service.cores.resumption import Resumption
from service.cores.standing_orders import Order, StandingOrders
from service.cores.utility_calls import UtilityCalls, UtilityError, agreed
from service.cores.wave_client import WaveClient
from service.errors import Unavailable, Unimplemented
from service.metrics.requests import RequestMetrics
from service.output_stream import OutputStream
from service.to_the_end import ToTheEnd

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
        self.requests = RequestMetrics()
        self.num_coalesced_outputs = 0
        """Outputs that were merged with one that its caller had not taken yet."""
        self.ends_strangers = False
        """Whether requests that nobody here knows are aborted: those of a process whose place this one has taken."""
        self._calls: dict[OutputStream, LiveCall] = {}
        self._requests: dict[str, LiveRequest] = {}
        """By the id under which they were added."""
        self._placement = Placement(engines, waves)
        self.resumption = Resumption(engines, self._placement, restart_wait_s)
        self.resumption.on_resumed = self._note_resumed
        self._aborts = CoreAborts(engines, lambda rank: self.call_rank(rank, QUESTION), self._deliver_abort)
        self._num_abort_orders = 0
        """Calls under way that have requests aborted."""
        self._utility_calls = UtilityCalls()
        self._orders = StandingOrders()
        self._work = ToTheEnd()
        self._tasks: frozenset[str] | None = None
        engines.serve(self)

    def __repr__(self) -> str:
        counts = f"{len(self._requests)} requests, {len(self.resumption)} calls waiting"
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
            self.resumption.begin(call)
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
            self._placement.abort(rank, lives)

    def stop(self, stream: OutputStream, request_id: str, reason: FinishReason) -> None:
        """For the caller ``request_id`` has ended: the core need not go on with it."""
        stream.finish(request_id)
        self.requests.end([request_id], reason)
        self._placement.abort(stream.rank, [self._requests[request_id]])

    def close_stream(self, stream: OutputStream, reason: FinishReason = FinishReason.ABORT) -> None:
        """Forget the requests of ``stream`` and abort those that have not ended, which ``reason`` ends.

        Never raises; may be called twice.
        """
        self.requests.end(stream.request_ids, reason)
        if (call := self._calls.pop(stream, None)) is None:
            return
        self._placement.abort(stream.rank, sorted(call.unfinished, key=lambda live: live.core_id))
        self._placement.withdraw(call)
        self.resumption.end(call)
        for request_id in stream.request_ids:
            del self._requests[request_id]
        stream.unfinished.clear()
        call.forget()

    async def call_utility(self, method: str, *args: Any) -> Any:
        """Call ``method`` on every core, and answer as ``agreed`` when all have.

        Raises UtilityError with a core's message, and Unavailable at once if a core is lost or silent, or becomes so.
        """
        aborts = "abort" in args
        self._num_abort_orders += aborts
        try:
            async with asyncio.TaskGroup() as group:
                calls = [group.create_task(self.call_rank(engine.rank, method, *args)) for engine in self.engines.all]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            self._num_abort_orders -= aborts
        if method == _EMPTIES_CACHES:
            self.forget_prefixes()
        result = agreed(method, [call.result() for call in calls])
        self._orders.note(method, args, result)
        return result

    def forget_prefixes(self) -> None:
        """The cores have emptied their prefix caches."""
        self._placement.forget_prefixes()

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
        at_cores = self._placement.at_cores
        for request_id in broken_ids:
            self._fail_broken(request_id)
        for output in outputs.outputs:
            if (live := at_cores.get(output.request_id)) is None:
                self._take_of_stranger(output, outputs.engine_index)
                continue
            if (live.is_resumed or output.finish_reason is FinishReason.ABORT) and self._keeps(live, output):
                output.request_id = ""  # Nobody's: it counts for nothing below.
                continue
            live.token_ids += output.new_token_ids
            self.num_coalesced_outputs += live.call.stream.put(output)
        if outputs.utility_output is not None:
            self._utility_calls.resolve(outputs.utility_output)
        self.requests.record(outputs)
        if self.resumption.has_trial:
            self.resumption.place()

    def _take_of_stranger(self, output: EngineCoreOutput, rank: int) -> None:
        if self.ends_strangers and not output.finished:
            self._placement.abort_named(rank, [output.request_id])

    def engine_is_gone(self, engine: Engine, error: Unavailable) -> None:
        """End everything that waits for ``engine``, unless another goes on with it."""
        self._utility_calls.fail(engine.rank, error)
        self._placement.forget_prefixes(engine.rank)
        self._aborts.forget(engine.rank)
        calls = [call for call in self._calls_at(engine.rank) if call.stream.unfinished]
        if engine.is_awaited:
            self.resumption.lose(engine, calls)
        else:
            self.resumption.give_up(calls, error)

    def engine_is_back(self, engine: Engine) -> None:
        """Let it be as its predecessor was, then go on with what that had."""
        if orders := [*self._orders]:
            engine.is_settling = True
            self._work.begin(self._settle(engine, engine.incarnation, orders))
        else:
            self._let_serve(engine)

    def engine_is_silent(self, engine: Engine, error: Unavailable) -> None:
        """Streams wait until it speaks again or their clients give up; calls can be made again."""
        self._utility_calls.fail(engine.rank, error)

    async def _settle(self, engine: Engine, incarnation: int, orders: Iterable[Order]) -> None:
        for method, args in orders:
            try:
                await self.call_rank(engine.rank, method, *args)
            except (UtilityError, Unavailable) as error:
                logger.warning("the new core of rank %d was told to %s: %s", engine.rank, method, error)
        if engine.incarnation == incarnation and engine.is_alive:
            self._let_serve(engine)

    def _let_serve(self, engine: Engine) -> None:
        self.engines.note_settled(engine)
        self.resumption.place()

    def _note_resumed(self, call: LiveCall) -> None:
        self.requests.note_resumed([live.request.request_id for live in call.unfinished])

    def _keeps(self, live: LiveRequest, output: EngineCoreOutput) -> bool:
        """Make an output of a later core one of the first. True: it is not for its stream, not yet or never."""
        if live.is_resumed:
            live.disguise(output)
        is_refusal = isinstance(output.stop_reason, str) and output.stop_reason.startswith(REFUSED)
        if output.finish_reason is FinishReason.ERROR and is_refusal and live.token_ids:
            self.resumption.fail(live.call, str(output.stop_reason))
            return True
        if output.finish_reason is not FinishReason.ABORT:
            return False
        if self._num_abort_orders or not self.engines.awaits_successors:
            return False
        if output.request_id in live.call.stream.unfinished:
            self._aborts.keep(live, output)
        return True

    def _deliver_abort(self, live: LiveRequest, output: EngineCoreOutput) -> None:
        output.request_id = live.request.request_id
        live.call.stream.put(output)
        self.requests.end([output.request_id], FinishReason.ABORT)

    def _fail_broken(self, core_id: str) -> None:
        if (live := self._placement.at_cores.get(core_id)) is None:
            return
        self._placement.abort(live.call.stream.rank, [live])
        request_id = live.request.request_id
        self.requests.end([request_id], FinishReason.ERROR)
        cause = "the core sent an undecodable output"
        live.call.stream.put(EngineCoreOutput(request_id, [], finish_reason=FinishReason.ERROR, stop_reason=cause))

    def _calls_at(self, rank: int) -> list[LiveCall]:
        return [call for call in self._calls.values() if call.stream.rank == rank]
