"""Where the reader leaves one caller's outputs: one slot per request id, however far the caller falls behind."""

from collections.abc import Callable, Iterable

import numpy as np

from core.wire.messages import EngineCoreOutput, LogprobsLists
from service.wakeup import Wakeup


class OutputStream:
    """The outputs of one caller's requests, which the core of ``rank`` runs.

    Outputs not taken yet are merged, so memory is bounded by ``max_tokens``.
    Owned by the event loop: the reader puts and fails, the caller awaits ``next``. Or it takes when ``on_arrival`` says
    that something has come, and whether it is urgent: the first output, a last one, a failure. Nothing here blocks.
    """

    __slots__ = (
        "_failure",
        "_has_begun",
        "_logprobs",
        "_on_arrival",
        "_waiting",
        "_wakeup",
        "rank",
        "request_ids",
        "unfinished",
    )

    def __init__(
        self, request_ids: Iterable[str], rank: int = 0, on_arrival: Callable[[bool], None] | None = None
    ) -> None:
        self.rank = rank
        self.request_ids = tuple(request_ids)
        self.unfinished = set(self.request_ids)
        self._waiting: dict[str, EngineCoreOutput] = {}
        self._logprobs: dict[str, list[LogprobsLists]] = {}
        self._failure: Exception | None = None
        self._has_begun = False
        self._wakeup: Wakeup | None = None
        if on_arrival is None:
            self._wakeup = Wakeup()
            on_arrival = self._wakeup.set
        self._on_arrival = on_arrival

    def __repr__(self) -> str:
        return (
            f"OutputStream({len(self.unfinished)} of {len(self.request_ids)} unfinished, {len(self._waiting)} waiting)"
        )

    def put(self, output: EngineCoreOutput) -> bool:
        """Leave ``output`` for the caller; an output of a request that has ended is dropped. True: it was merged."""
        request_id = output.request_id
        if request_id not in self.unfinished:
            return False
        is_urgent = not self._has_begun
        if output.finish_reason is not None:
            self.unfinished.discard(request_id)
            is_urgent = True
        waiting = self._waiting.get(request_id)
        if waiting is None:
            self._waiting[request_id] = output
            self._has_begun = True
        else:
            self._merge(waiting, output)
        self._on_arrival(is_urgent)
        return waiting is not None

    def fail(self, error: Exception) -> None:
        """Let ``take`` raise ``error`` once the outputs that came before it are taken. The first error wins."""
        if self._failure is None:
            self._failure = error
        self._on_arrival(True)

    def finish(self, request_id: str) -> None:
        """The caller wants no more of ``request_id``."""
        self.unfinished.discard(request_id)
        self._waiting.pop(request_id, None)
        self._logprobs.pop(request_id, None)

    async def next(self) -> list[EngineCoreOutput]:
        """As ``take``; waits for at least one output. For a caller that gave no ``on_arrival``."""
        assert self._wakeup is not None, "nobody else is told"
        while not (outputs := self.take()):
            await self._wakeup.wait()
        return outputs

    def take(self) -> list[EngineCoreOutput]:
        """What came since the last call, one output per request. Raises what ``fail`` set."""
        if not self._waiting:
            if self._failure is not None:
                raise self._failure
            return []
        outputs = [*self._waiting.values()]
        self._waiting.clear()
        if self._logprobs:
            for output in outputs:
                if (parts := self._logprobs.pop(output.request_id, None)) is not None:
                    output.new_logprobs = _joined(parts)
        if self._failure is not None:
            self._on_arrival(True)  # for the next call, which raises it
        return outputs

    def _merge(self, waiting: EngineCoreOutput, output: EngineCoreOutput) -> None:
        """Append ``output``. What only a first or only a last output has is kept."""
        if output.new_logprobs is not None:
            self._note_logprobs(waiting, output.new_logprobs)
        waiting.new_token_ids.extend(output.new_token_ids)
        waiting.finish_reason = output.finish_reason
        waiting.stop_reason = output.stop_reason
        waiting.num_nans_in_logits += output.num_nans_in_logits
        if waiting.prefill_stats is None:
            waiting.prefill_stats = output.prefill_stats
        if waiting.new_prompt_logprobs_tensors is None:
            waiting.new_prompt_logprobs_tensors = output.new_prompt_logprobs_tensors

    def _note_logprobs(self, waiting: EngineCoreOutput, logprobs: LogprobsLists) -> None:
        """They are joined only when taken: every join copies all of them."""
        parts = self._logprobs.get(waiting.request_id)
        if parts is None:
            parts = self._logprobs[waiting.request_id] = []
            if waiting.new_logprobs is not None:
                parts.append(waiting.new_logprobs)
        parts.append(logprobs)


def _joined(parts: list[LogprobsLists]) -> LogprobsLists | None:
    """None, which whoever asked for them will miss, if they do not fit together."""
    if len(parts) == 1:
        return parts[0]
    try:
        return LogprobsLists(
            np.concatenate([part.token_ids for part in parts]),
            np.concatenate([part.logprobs for part in parts]),
            np.concatenate([part.ranks for part in parts]),
        )
    except ValueError:
        return None
