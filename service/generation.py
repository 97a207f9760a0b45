"""One request on its way: how it is put to the core, and what the core's outputs mean. Pure: no sockets."""

import logging
import secrets
import time
from dataclasses import dataclass

from core.wire.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from core.wire.sampling_params import ALL_LOGPROBS
from service.calls.call import current_call
from service.cores.output_check import fault_of, prompt_fault_of
from service.errors import Internal, shown
from service.events import Delta, Event, Finished, Started
from service.generation_request import GenerationRequest
from service.refusal import raise_if_refused
from service.sequence import Sequence, SequenceFinish
from service.text.token_bytes import UnknownTokenError
from service.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Child:
    """One sequence of the request, to the core a request of its own."""

    sequence: Sequence
    num_cached_tokens: int = 0


class Generation:
    """The ``n`` sequences of ``request``.

    Their ids in the core are ``<request_id>-<8 hex>``, for n > 1 ``<index>_<request_id>-<8 hex>``: a client may use an
    id again while the core still winds up its namesake.
    """

    __slots__ = (
        "_children",
        "_num_failed",
        "_num_unfinished",
        "_started",
        "_wants_logprobs",
        "_wants_token_ids",
        "request",
    )

    def __init__(self, request: GenerationRequest, tokenizer: Tokenizer) -> None:
        self.request = request
        name, n = f"{request.request_id}-{secrets.token_hex(4)}", request.sampling_params.n
        names = [name] if n == 1 else [f"{index}_{name}" for index in range(n)]
        self._children = {name: _Child(Sequence(index, request, tokenizer)) for index, name in enumerate(names)}
        self._num_unfinished = n
        self._num_failed = 0
        self._started = False
        params = request.sampling_params
        self._wants_logprobs = params.logprobs is not None or params.logprob_token_ids is not None
        self._wants_token_ids = request.output.token_ids

    def __repr__(self) -> str:
        return f"Generation({self.request.request_id!r}, {self._num_unfinished} of {len(self._children)} unfinished)"

    @property
    def core_ids(self) -> list[str]:
        """The ids of the sequences in the core."""
        return list(self._children)

    @property
    def finished(self) -> bool:
        """Every sequence has ended."""
        return self._num_unfinished == 0

    def core_requests(self) -> list[EngineCoreRequest]:
        """What the core gets, one request per sequence."""
        request, now, call = self.request, time.time(), current_call()
        return [
            EngineCoreRequest(
                request_id=core_id,
                prompt_token_ids=request.prompt_token_ids if request.prompt_embeds is None else None,
                mm_features=None,
                sampling_params=request.sequence_params(child.sequence.index),
                pooling_params=None,
                arrival_time=now,
                lora_request=request.lora,
                cache_salt=request.cache_salt,
                data_parallel_rank=request.data_parallel_rank,
                prompt_embeds=request.prompt_embeds,
                priority=request.priority,
                trace_headers=call.trace_headers if call is not None else None,
                external_req_id=request.request_id,
                reasoning_ended=request.reasoning_ended,
            )
            for core_id, child in self._children.items()
        ]

    def feed(self, output: EngineCoreOutput) -> list[Event]:
        """What ``output`` tells, in order.

        Raises InvalidRequest if the core refused the request, Internal if every sequence has failed. A sequence that
        fails while another does not ends as ERROR.
        """
        if output.finish_reason is None and self._started and (plain := self._pass_through(output)) is not None:
            return plain
        if output.finish_reason is FinishReason.ERROR and not self._started and not output.new_token_ids:
            # Every sequence asks for the same: what the core refuses once, before anything, it refuses n times.
            raise_if_refused(self.request.request_id, output.stop_reason)
        child = self._children[output.request_id]
        if output.prefill_stats is not None:
            child.num_cached_tokens = self._sensible(output.prefill_stats.num_cached_tokens)
        fault = self._fault_of(output)
        events: list[Event] = [] if self._started else [self._start(child, output)]
        if fault is not None:
            return [*events, self._fail(child, child.sequence.broken_off(), fault)]
        try:
            return events + self._progress(child, output)
        except UnknownTokenError as error:
            return [*events, self._fail(child, child.sequence.broken_off(), error)]

    def _pass_through(self, output: EngineCoreOutput) -> list[Event] | None:
        """As ``feed``, of an output that has tokens and nothing else, as nearly all have. None: that is not so, or its
        tokens need a closer look.
        """
        if self._wants_logprobs or output.new_logprobs is not None or output.num_nans_in_logits:
            return None
        if output.prefill_stats is not None:
            return None
        sequence = self._children[output.request_id].sequence
        token_ids = output.new_token_ids
        text = sequence.pass_through(token_ids)
        if text is None:
            return None
        if self._wants_token_ids:
            return [Delta(sequence.index, text, token_ids, None)]
        return [Delta(sequence.index, text, [], None)] if text else []

    def _sensible(self, num_cached_tokens: int) -> int:
        """Of the prompt, whatever the core says."""
        return min(max(num_cached_tokens, 0), self.request.num_prompt_tokens)

    def _fault_of(self, output: EngineCoreOutput) -> str | None:
        if output.finish_reason is FinishReason.ERROR:
            return None
        params = self.request.sampling_params
        if not self._started and (fault := prompt_fault_of(output, params, len(self.request.prompt_token_ids))):
            return fault
        return fault_of(output, params)

    def _start(self, child: _Child, output: EngineCoreOutput) -> Started:
        self._started = True
        echoed = self.request.prompt_token_ids if self.request.output.echo_prompt_token_ids else []
        return Started(
            self.request.num_prompt_tokens,
            child.num_cached_tokens,
            echoed,
            output.new_prompt_logprobs_tensors,
            scores_all=self.request.sampling_params.prompt_logprobs == ALL_LOGPROBS,
        )

    def _progress(self, child: _Child, output: EngineCoreOutput) -> list[Event]:
        events: list[Event] = []
        delta = child.sequence.feed(output)
        token_ids = delta.token_ids if self.request.output.token_ids else []
        if delta.text or token_ids or delta.logprobs is not None:
            scores_all = self.request.sampling_params.logprobs == ALL_LOGPROBS
            events.append(Delta(child.sequence.index, delta.text, token_ids, delta.logprobs, scores_all))
        if delta.finish is not None and delta.finish.reason is FinishReason.ERROR:
            events.append(self._fail(child, delta.finish, output.stop_reason))
        elif delta.finish is not None:
            events.append(self._finish(child, delta.finish))
        return events

    def _fail(self, child: _Child, finish: SequenceFinish, cause: object) -> Finished:
        self._num_failed += 1
        if self._num_failed == len(self._children):
            raise_if_refused(self.request.request_id, cause)
            message = f"the engine failed at request {shown(self.request.request_id)}"
            raise Internal(message, reason="ENGINE_ERROR", cause=str(cause))
        name = self.request.request_id
        extra = {"request_id": name}
        logger.error("request %s: sequence %d failed, others go on: %s", name, child.sequence.index, cause, extra=extra)
        return self._finish(child, finish)

    def _finish(self, child: _Child, finish: SequenceFinish) -> Finished:
        self._num_unfinished -= 1
        return Finished(child.sequence.index, finish, self.request.num_prompt_tokens, child.num_cached_tokens)
