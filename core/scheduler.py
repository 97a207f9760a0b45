"""Which requests run in the next step, and what the step's result means for them.

A request waits, runs, and may be preempted: its blocks go to one that comes before it, and it starts over with the
tokens it has, at its place in the queue. There is no prefill phase: every running request is computed up to its last
token as far as the step's token budget goes, the first in order first. The order is that of arrival, or of priority.
Beside answers that are in full flow, later prompts get as many tokens as make a step only so much longer: see StepPace.
Those that were there when an answer began came with it, and share the step in full: a burst is not to be drawn out.

``schedule`` and ``update_from_output`` are separate calls, and only the step passes from one to the other. A step may
be scheduled before the one that runs has ended. It counts on the tokens that one will give, but on nothing they say:
blocks are found by others only after the update, and what nobody wants any more when its step ends is thrown away. The
blocks of such a step may be somebody else's by then, who writes them later, because steps run in their order.
"""

import logging
from collections.abc import Iterable

from core.config import SchedulerConfig
from core.executor.interface import ModelRunnerOutput
from core.kv_cache import KVCache
from core.lora.loras import Loras
from core.pause_state import PauseMode, PauseState
from core.request import Request, RequestStatus
from core.request_limits import RequestError
from core.request_output import append_tokens, make_output
from core.request_queue import RequestQueue
from core.scheduler_stats import make_stats
from core.speculation import Speculation
from core.step import Share, Step
from core.step_fault import find_fault
from core.step_pace import StepPace
from core.structured_output.constraint import Constraint
from core.wire.messages import REFUSED, EngineCoreOutput, EngineCoreOutputs, EventType, FinishReason
from core.wire.sampling_params import Violation

logger = logging.getLogger(__name__)

Outputs = dict[int, EngineCoreOutputs]
"""One message per front end, by client index."""
_NUM_TOKENS_IN_FLOW = 8
"""An answer is in full flow when it has as many: requests that were sent together have all arrived by then."""


class Scheduler:
    """Shares one KV cache out among requests. Owned by the busy loop: no locks."""

    def __init__(
        self,
        config: SchedulerConfig,
        kv_cache: KVCache,
        vocab_size: int,
        pace: StepPace,
        loras: Loras | None = None,
    ) -> None:
        self.kv_cache = kv_cache
        self.loras = loras
        self.requests: dict[str, Request] = {}
        self.waiting = RequestQueue(config.scheduling_policy)
        self.running = RequestQueue(config.scheduling_policy)
        self.held = RequestQueue(config.scheduling_policy)
        self.num_preemptions = 0
        self.pause_state = PauseState.UNPAUSED
        self._config = config
        self._vocab_size = vocab_size
        self._pace = pace
        self._speculation = Speculation(config.speculation, kv_cache)
        self._num_arrivals = 0
        # Not told yet: to the model runner, to the front ends, to anyone.
        self._forgotten_ids: list[str] = []
        self._pending_outputs: Outputs = {}
        self._has_unreported_finish = False
        self._num_in_flight = 0

    def __repr__(self) -> str:
        counts = f"{len(self.running)} running, {len(self.waiting)} waiting, {len(self.held)} held"
        return f"Scheduler({counts}, {self.num_preemptions} preemptions, {self.pause_state.name}, {self.kv_cache})"

    def has_work(self) -> bool:
        """Whether there are steps in flight, or another would do anything: compute, or report what has finished."""
        if self._num_in_flight or self._has_unreported_finish or (self.loras is not None and self.loras.is_loading):
            return True
        match self.pause_state:
            case PauseState.UNPAUSED:
                return bool(self.running or self.waiting) or any(r.has_settled_grammar for r in self.held)
            case PauseState.PAUSED_NEW:
                return bool(self.running)
            case PauseState.PAUSED_ALL:
                return False

    def add_request(self, request: Request) -> None:
        """Queue ``request``. Raises RequestError if a live request has its id."""
        request_id = request.request_id
        if request_id in self.requests:
            raise RequestError(Violation("request_id", f"must not be that of a live request, got {request_id!r}"))
        if request.lora_request is not None and self.loras is not None:
            self.loras.hold(request)
        request.record(EventType.QUEUED)
        request.arrival_number = self._num_arrivals
        self._num_arrivals += 1
        self.requests[request_id] = request
        self.waiting.add(request)

    def hold(self, request: Request, constraint: Constraint) -> None:
        """Keep ``request``, which was just added, waiting until its ``constraint`` is settled."""
        self.waiting.remove(request)
        request.status, request.constraint = RequestStatus.WAITING_FOR_GRAMMAR, constraint
        self.held.add(request)

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """Drop these requests without an output; unknown and finished ones are ignored."""
        for request_id in request_ids:
            if (request := self.requests.get(request_id)) is not None:
                self._finish(request, FinishReason.ABORT)

    def abort_all(self, client_index: int | None = None) -> Outputs:
        """End every request, or every one of a client, with an ABORT output, named in ``finished_requests`` as well."""
        outputs, self._pending_outputs = self._pending_outputs, {}
        for request in [r for r in self.requests.values() if client_index in (None, r.client_index)]:
            self._finish(request, FinishReason.ABORT)
            message = outputs.setdefault(request.client_index, EngineCoreOutputs())
            message.outputs.append(EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.ABORT))
        for message in outputs.values():
            message.finished_requests = [output.request_id for output in message.outputs]
        return outputs

    def pause(self, mode: PauseMode) -> None:
        """Start nothing new; what runs may end ("wait"), is frozen ("keep") or aborted with the next step ("abort")."""
        self.pause_state = PauseState.PAUSED_ALL if mode == "keep" else PauseState.PAUSED_NEW
        if mode == "abort":
            self._pending_outputs = self.abort_all()

    @property
    def is_paused(self) -> bool:
        return self.pause_state is not PauseState.UNPAUSED

    def resume(self) -> None:
        self.pause_state = PauseState.UNPAUSED

    def reset_prefix_cache(self, reset_running_requests: bool) -> bool:
        """Forget every cached prefix; False, and nothing forgotten, while requests hold blocks.

        ``reset_running_requests``: preempt those first, so that they start over from an empty cache.
        """
        while reset_running_requests and self.running:
            self._preempt(self.running.pop_last())
        if not self.kv_cache.reset():
            logger.warning("prefix cache not reset: %d running requests hold blocks", len(self.running))
            return False
        self.kv_cache.end_step()
        return True

    def schedule(self) -> Step | None:
        """The next step. What the runner was to forget, and what was to be reported, goes out with it.

        None if there is nothing to compute, nor anything to tell that the steps in flight will not tell.
        """
        if self.loras is not None and self.loras.settle():
            self._refuse_broken_adapters()
        step = Step(self._config.max_num_batched_tokens)
        if self.pause_state is not PauseState.PAUSED_ALL:
            num_preemptions = self.num_preemptions
            self._limit_newcomers(step)
            self._schedule_running(step)
            # Who is admitted now would only take the blocks that were just found to be too few.
            if self.pause_state is PauseState.UNPAUSED and self.num_preemptions == num_preemptions:
                self._let_go_of_ready()
                self._schedule_waiting(step)
            self._speculation.fill(step)
        if not step.shares and (self._num_in_flight or not self._has_unreported_finish):
            return None
        step.work.finished_request_ids, self._forgotten_ids = self._forgotten_ids, []
        self._has_unreported_finish = False
        self._num_in_flight += 1
        return step

    def update_from_output(self, step: Step, result: ModelRunnerOutput) -> Outputs:
        """Advance the requests of ``step`` by its ``result``; the messages to send, statistics in one of them."""
        self._num_in_flight -= 1
        outputs, self._pending_outputs = self._pending_outputs, {}
        for share in step.shares:
            if share.is_stale:
                continue
            output = self._advance(share, result)
            if output is not None:
                outputs.setdefault(share.request.client_index, EngineCoreOutputs()).outputs.append(output)
        self.kv_cache.end_step()
        stats_client = next(iter(outputs), 0)
        outputs.setdefault(stats_client, EngineCoreOutputs()).scheduler_stats = make_stats(
            self.running, self.waiting, self.held, self.kv_cache, self._speculation, self.loras is not None
        )
        return outputs

    def check_integrity(self) -> None:
        """Raise RuntimeError, with the numbers, if blocks or requests have leaked."""
        if len(self.requests) != len(self.waiting) + len(self.running) + len(self.held):
            raise RuntimeError(f"{len(self.requests)} requests, {self}")
        self.kv_cache.check_integrity(self.requests.values())
        if self.loras is not None:
            self.loras.check_integrity(self.requests.values())

    def _limit_newcomers(self, step: Step) -> None:
        decoding = [request for request in self.running if request.num_due_tokens == 1]
        since = [request.flowing_since for request in decoding if request.flowing_since is not None]
        if since:
            step.limit_newcomers(min(since), self._pace.max_prefill_tokens(len(decoding)))

    def _schedule_running(self, step: Step) -> None:
        """Give each running request its tokens, in order."""
        position = 0
        while position < len(self.running) and step.budget > 0:
            request = self.running[position]
            if num_tokens := step.room_for(request):
                block_ids = self._grow(request, num_tokens)
                if block_ids is None:
                    break
                step.go_on(request, num_tokens, block_ids)
            position += 1

    def _grow(self, request: Request, num_tokens: int) -> list[list[int]] | None:
        """Blocks for ``num_tokens`` more, from the last in order if need be; None if that is ``request`` itself."""
        while (block_ids := self.kv_cache.grow(request, num_tokens)) is None:
            last = self.running.pop_last()
            self._preempt(last)
            if last is request:
                return None
        return block_ids

    def _preempt(self, request: Request) -> None:
        self.kv_cache.release(request)
        request.status = RequestStatus.PREEMPTED
        request.num_preemptions += 1
        request.record(EventType.PREEMPTED)
        self.waiting.add(request)
        self._forgotten_ids.append(request.request_id)
        self.num_preemptions += 1

    def _let_go_of_ready(self) -> None:
        """Queue those whose grammar is there; end those for whom there is none."""
        for request in [held for held in self.held if held.has_settled_grammar]:
            assert request.constraint is not None, "that is why it was held"
            self.held.remove(request)
            request.status = RequestStatus.WAITING
            self.waiting.add(request)
            if (cause := request.constraint.start(request.output_token_ids)) is not None:
                self._fail_outside_of_a_step(request, cause)

    def _schedule_waiting(self, step: Step) -> None:
        """Admit requests in their order until one does not fit.

        Those whose beginning is being computed for another one bide their time: later they find it. They keep their
        seats, and who comes behind them passes only with all its tokens, so that none is left to be computed first.
        """
        biding: set[Request] = set()
        while step.budget > 0 and len(self.running) + len(biding) < self._config.max_num_seqs:
            request = self._choose(queued for queued in self.waiting if queued not in biding)
            if request is None or not step.room_for(request):
                break
            if self.kv_cache.is_about_to_find_more(request, self.running.before(request)):
                biding.add(request)
                continue
            if (biding and request.num_due_tokens > step.room_for(request)) or not self.kv_cache.admit(request):
                break
            self._admit(request, step)

    def _choose(self, waiting: Iterable[Request]) -> Request | None:
        return next(iter(waiting), None) if self.loras is None else self.loras.choose(waiting, self.running)

    def _admit(self, request: Request, step: Step) -> None:
        self.waiting.remove(request)
        self.running.add(request)
        request.status = RequestStatus.RUNNING
        request.record(EventType.SCHEDULED)
        if request.num_preemptions == 0:
            request.num_cached_tokens = request.num_computed_tokens
        step.begin(request)

    def _refuse_broken_adapters(self) -> None:
        """End those that wait for an adapter that could not be loaded, also if they wait for their grammar."""
        for request in list(self.requests.values()):
            if request.adapter is not None and request.adapter.error is not None:
                self._fail_outside_of_a_step(request, f"{REFUSED}lora_request {request.adapter.error}")

    def _advance(self, share: Share, result: ModelRunnerOutput) -> EngineCoreOutput | None:
        """What the step gave the request of ``share``; None while its prefill is incomplete."""
        request = share.request
        request.num_computed_tokens += share.num_tokens
        if request.num_computed_tokens < request.num_tokens:
            self.kv_cache.remember(request)
            return None
        token_ids = result.sampled_token_ids[request.request_id]
        self._speculation.settle(share, num_accepted_tokens=len(token_ids) - 1)
        if (fault := find_fault(request, result, self._vocab_size)) is None:
            return self._append(request, token_ids, result)
        (self.kv_cache.forget if fault.is_the_models else self.kv_cache.remember)(request)
        return self._fail(request, fault.cause, fault.num_nans)

    def _append(self, request: Request, token_ids: list[int], result: ModelRunnerOutput) -> EngineCoreOutput:
        output, stop = append_tokens(request, token_ids, result)
        if request.flowing_since is None and request.num_output_tokens >= _NUM_TOKENS_IN_FLOW:
            request.flowing_since = self._num_arrivals
        # Drafts after a stop were right and are computed, but are not in the request.
        request.num_computed_tokens = request.num_tokens - 1
        self.kv_cache.remember(request)
        if stop is not None:
            self._finish(request, stop.finish_reason)
            output.finish_reason, output.stop_reason = stop
        return output

    def _fail_outside_of_a_step(self, request: Request, cause: str) -> None:
        message = self._pending_outputs.setdefault(request.client_index, EngineCoreOutputs())
        message.outputs.append(self._fail(request, cause))

    def _fail(self, request: Request, cause: str, num_nans: int = 0) -> EngineCoreOutput:
        """End one request as ERROR."""
        level = logging.WARNING if cause.startswith(REFUSED) else logging.ERROR
        logger.log(level, "request %.100s failed: %s", request.request_id, cause, extra={"request_id": request.name})
        self._finish(request, FinishReason.ERROR)
        output = make_output(request)
        output.stop_reason, output.num_nans_in_logits = cause, num_nans
        return output

    def _finish(self, request: Request, reason: FinishReason) -> None:
        if request.is_running:
            self._forgotten_ids.append(request.request_id)
            self.running.remove(request)
        elif request.status is RequestStatus.WAITING_FOR_GRAMMAR:
            self.held.remove(request)
        else:
            self.waiting.remove(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        self.kv_cache.release(request)
        if request.adapter is not None and self.loras is not None:
            self.loras.release(request.adapter)
        if request.constraint is not None:
            request.constraint.close()
        del self.requests[request.request_id]
        self._has_unreported_finish = True
