"""Where the reader leaves one caller's outputs: one slot per request id, however far the caller falls behind."""

import asyncio
from collections.abc import Iterable

import numpy as np

from core.wire.messages import EngineCoreOutput, LogprobsLists


class OutputStream:
    """The outputs of one caller's requests, which the core of ``rank`` runs.

    Outputs not taken yet are merged, so memory is bounded by ``max_tokens``.
    Owned by the event loop: the reader puts and fails, the caller awaits ``next``. Nothing here blocks.
    """

    def __init__(self, request_ids: Iterable[str], rank: int = 0) -> None:
        self.rank = rank
        self.request_ids = tuple(request_ids)
        self.unfinished = set(self.request_ids)
        self._slots: dict[str, _Slot] = {}
        self._failure: Exception | None = None
        self._wakeup: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"OutputStream({len(self.unfinished)} of {len(self.request_ids)} unfinished, {len(self._slots)} waiting)"

    def put(self, output: EngineCoreOutput) -> bool:
        """Leave ``output`` for the caller; an output of a request that has ended is dropped. True: it was merged."""
        request_id = output.request_id
        if request_id not in self.unfinished:
            return False
        if output.finished:
            self.unfinished.discard(request_id)
        waiting = self._slots.get(request_id)
        if waiting is None:
            self._slots[request_id] = _Slot(output)
        else:
            waiting.merge(output)
        self._wake()
        return waiting is not None

    def fail(self, error: Exception) -> None:
        """Let ``next`` raise ``error`` once the outputs that came before it are taken. The first error wins."""
        if self._failure is None:
            self._failure = error
        self._wake()

    def finish(self, request_id: str) -> None:
        """The caller wants no more of ``request_id``."""
        self.unfinished.discard(request_id)
        self._slots.pop(request_id, None)

    async def next(self) -> list[EngineCoreOutput]:
        """What came since the last call, one output per request; waits for at least one. Raises what ``fail`` set."""
        while not self._slots:
            if self._failure is not None:
                raise self._failure
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup
        outputs = [slot.take() for slot in self._slots.values()]
        self._slots.clear()
        return outputs

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)


class _Slot:
    """The outputs of one request that wait, as one output."""

    __slots__ = ("_logprobs", "_output")

    def __init__(self, output: EngineCoreOutput) -> None:
        self._output = output
        self._logprobs = [] if output.new_logprobs is None else [output.new_logprobs]

    def merge(self, output: EngineCoreOutput) -> None:
        """Append ``output``. What only a first or only a last output has is kept."""
        waiting = self._output
        waiting.new_token_ids.extend(output.new_token_ids)
        if output.new_logprobs is not None:
            self._logprobs.append(output.new_logprobs)
        waiting.finish_reason = output.finish_reason
        waiting.stop_reason = output.stop_reason
        waiting.num_nans_in_logits += output.num_nans_in_logits
        if waiting.prefill_stats is None:
            waiting.prefill_stats = output.prefill_stats
        if waiting.new_prompt_logprobs_tensors is None:
            waiting.new_prompt_logprobs_tensors = output.new_prompt_logprobs_tensors

    def take(self) -> EngineCoreOutput:
        """The one output. The log-probabilities are joined only now: every join copies all of them."""
        if self._logprobs:
            self._output.new_logprobs = _joined(self._logprobs)
        return self._output


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
