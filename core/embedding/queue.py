"""The texts that wait to be embedded: first come, first served. A text is one forward pass, so none ever runs on."""

from collections.abc import Iterable, Iterator

from core.config import SchedulerConfig
from core.embedding.request import EmbeddingRequest
from core.pause_state import PauseMode
from core.request_limits import RequestError
from core.wire.sampling_params import Violation


class EmbeddingQueue:
    """Owned by the busy loop. ``config`` bounds a step: texts, and their tokens, padding included."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._waiting: dict[str, EmbeddingRequest] = {}
        self._aborted_by_pause: list[EmbeddingRequest] = []
        self.is_paused = False

    def __repr__(self) -> str:
        return f"EmbeddingQueue({len(self)} waiting{', paused' if self.is_paused else ''})"

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: EmbeddingRequest) -> None:
        """Raises RequestError if a live request has its id."""
        request_id = request.request_id
        if request_id in self._waiting:
            raise RequestError(Violation("request_id", f"must not be that of a live request, got {request_id!r}"))
        self._waiting[request_id] = request

    def drop(self, request_ids: Iterable[str]) -> None:
        """Unknown ids are ignored."""
        for request_id in request_ids:
            self._waiting.pop(request_id, None)

    def drop_all(self, client_index: int | None) -> list[EmbeddingRequest]:
        """Those of a client, or all."""
        dropped = [request for request in self._waiting.values() if client_index in (None, request.client_index)]
        self.drop(request.request_id for request in dropped)
        return dropped

    def pause(self, mode: PauseMode) -> None:
        """Take nothing any more. Nothing runs between two steps, so "wait" is as "keep"."""
        self.is_paused = True
        if mode == "abort":
            self._aborted_by_pause += self.drop_all(None)

    def resume(self) -> None:
        self.is_paused = False

    def take_aborted(self) -> list[EmbeddingRequest]:
        """Those that a pause has ended and nobody was told of."""
        aborted, self._aborted_by_pause = self._aborted_by_pause, []
        return aborted

    def has_work(self) -> bool:
        return bool(self._aborted_by_pause or (self._waiting and not self.is_paused))

    def take_batch(self) -> list[EmbeddingRequest]:
        """The oldest ones, as many as a step takes: at least one, unless paused or empty."""
        batch = [] if self.is_paused else list(self._fitting())
        self.drop(request.request_id for request in batch)
        return batch

    def _fitting(self) -> Iterator[EmbeddingRequest]:
        longest = 0
        for count, request in enumerate(self._waiting.values(), start=1):
            longest = max(longest, len(request.token_ids))
            is_too_much = longest * count > self._config.max_num_batched_tokens
            if count > self._config.max_num_seqs or (count > 1 and is_too_much):
                return
            yield request
