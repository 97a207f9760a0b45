"""The engine of embedding models: each step takes the texts that wait, and answers all of them.

input thread: preprocess_add_request ─▶ add_request ─▶ EmbeddingQueue ─▶ step: Encoder ─▶ EngineCoreOutputs
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from core.aborts_queue import AbortsQueue
from core.config import SchedulerConfig
from core.embedding.encoder import Encoder
from core.embedding.queue import EmbeddingQueue
from core.embedding.request import EmbeddingRequest
from core.embedding.utilities import EmbeddingUtilities
from core.wire.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, EngineReadyResponse, FinishReason
from core.wire.stats import SchedulerStats
from core.wire.version import WireVersion

Outputs = dict[int, EngineCoreOutputs]


class EmbeddingEngine:
    """Fulfils ``core.engine_interface.Engine``. A text longer than ``max_model_len`` tokens is refused, not cut."""

    lockstep = None

    def __init__(self, encoder: Encoder, config: SchedulerConfig, max_model_len: int) -> None:
        self._encoder = encoder
        self._max_model_len = max_model_len
        self._queue = EmbeddingQueue(config)
        self._utilities = EmbeddingUtilities(self._queue)
        self.aborts_queue = AbortsQueue()
        self.ready_response = EngineReadyResponse(
            max_model_len=max_model_len,
            num_gpu_blocks=1,  # The null block: front ends want to hear of one.
            block_size=1,
            dtype=encoder.info.dtype,
            vllm_version=WireVersion.V0_25.vllm_version,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
        )

    def preprocess_add_request(self, message: EngineCoreRequest) -> EmbeddingRequest:
        """Raises RequestError."""
        return EmbeddingRequest(message, self._encoder.info, self._max_model_len)

    def add_request(self, request: EmbeddingRequest) -> None:
        self._queue.add(request)
        if request.abort_immediately:
            self._queue.drop([request.request_id])

    def abort_requests(self, request_ids: list[str]) -> None:
        self._queue.drop(request_ids)

    def abort_all(self, client_index: int | None = None) -> Outputs:
        return _aborted(self._queue.drop_all(client_index) + self._queue.take_aborted())

    def has_requests(self) -> bool:
        return self._queue.has_work() or self._utilities.is_pausing

    def num_unfinished_requests(self) -> int:
        return len(self._queue)

    def request_counts(self) -> tuple[int, int]:
        return len(self._queue), 0

    def step(self) -> tuple[Outputs, bool]:
        # Those of before the step come through the input queue too, in order with a later request of the same id.
        self.aborts_queue.take()
        outputs = _aborted(self._queue.take_aborted())
        batch = self._queue.take_batch()
        if batch:
            self._embed(batch, outputs)
        elif not outputs:
            self._utilities.settle_pauses()
        return outputs, bool(batch)

    def on_progress(self, callback: Callable[[], None]) -> None:
        """Nothing here waits for anything but input."""

    def call_utility(self, method: str, args: list[Any]) -> Any:
        return self._utilities.call(method, args)

    def check_integrity(self) -> None:
        """There is nothing to lose count of."""

    def reset(self) -> None:
        self._utilities.resume_scheduler()

    def shutdown(self) -> None:
        """Nothing is left behind."""

    def _embed(self, batch: list[EmbeddingRequest], outputs: Outputs) -> None:
        for request in batch:
            request.note_scheduled()
        vectors = self._encoder.encode([request.token_ids for request in batch])
        dropped = set(self.aborts_queue.take())
        for request, vector in zip(batch, np.asarray(vectors), strict=True):
            if request.request_id not in dropped:
                message = outputs.setdefault(request.client_index, EngineCoreOutputs())
                message.outputs.append(request.output(vector))
        stats_client = next(iter(outputs), 0)
        outputs.setdefault(stats_client, EngineCoreOutputs()).scheduler_stats = SchedulerStats(
            num_waiting_reqs=len(self._queue)
        )


def _aborted(requests: list[EmbeddingRequest]) -> Outputs:
    """Their last outputs, named in ``finished_requests`` as well."""
    ended: defaultdict[int, list[str]] = defaultdict(list)
    for request in requests:
        ended[request.client_index].append(request.request_id)
    return {
        client_index: EngineCoreOutputs(
            outputs=[EngineCoreOutput(request_id, [], finish_reason=FinishReason.ABORT) for request_id in ids],
            finished_requests=ids,
        )
        for client_index, ids in ended.items()
    }
