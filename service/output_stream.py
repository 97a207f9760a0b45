"""Where the reader leaves one caller's outputs: one slot per request id, however far the caller falls behind."""

import asyncio
from collections.abc import Iterable

import numpy as np

from core.wire.messages import EngineCoreOutput, LogprobsLists


class OutputStream:
    """The outputs of one caller's requests. Outputs not taken yet are merged, so memory is bounded by ``max_tokens``.

    Owned by the event loop: the reader puts and fails, the caller awaits ``next``. Nothing here blocks.
    """

    def __init__(self, request_ids: Iterable[str]) -> None:
        self.request_ids = tuple(request_ids)
        self.unfinished = set(self.request_ids)
        self._slots: dict[str, EngineCoreOutput] = {}
        self._failure: Exception | None = None
        self._wakeup: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"OutputStream({len(self.unfinished)} of {len(self.request_ids)} unfinished, {len(self._slots)} waiting)"

    def put(self, output: EngineCoreOutput) -> None:
        """Leave ``output`` for the caller; an output of a request that has ended is dropped."""
        request_id = output.request_id
        if request_id not in self.unfinished:
            return
        if output.finished:
            self.unfinished.discard(request_id)
        waiting = self._slots.get(request_id)
        if waiting is None:
            self._slots[request_id] = output
        else:
            _merge(waiting, output)
        self._wake()

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
        outputs = list(self._slots.values())
        self._slots.clear()
        return outputs

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)


def _merge(into: EngineCoreOutput, output: EngineCoreOutput) -> None:
    """Append ``output`` to the earlier ``into``. What only a first or only a last output has is kept."""
    into.new_token_ids.extend(output.new_token_ids)
    into.new_logprobs = _joined(into.new_logprobs, output.new_logprobs)
    into.finish_reason = output.finish_reason
    into.stop_reason = output.stop_reason
    into.num_nans_in_logits += output.num_nans_in_logits
    if into.prefill_stats is None:
        into.prefill_stats = output.prefill_stats
    if into.new_prompt_logprobs_tensors is None:
        into.new_prompt_logprobs_tensors = output.new_prompt_logprobs_tensors


def _joined(earlier: LogprobsLists | None, later: LogprobsLists | None) -> LogprobsLists | None:
    if earlier is None or later is None:
        return earlier or later
    return LogprobsLists(
        np.concatenate((earlier.token_ids, later.token_ids)),
        np.concatenate((earlier.logprobs, later.logprobs)),
        np.concatenate((earlier.ranks, later.ranks)),
    )
