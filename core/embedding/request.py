"""One text to embed, checked against the model's limits."""

import time
from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from core.embedding.encoder import EncoderInfo
from core.request_limits import RequestError
from core.wire.messages import (
    EngineCoreEvent,
    EngineCoreOutput,
    EngineCoreRequest,
    EventType,
    FinishReason,
    PrefillStats,
)
from core.wire.pooling_params import PoolingParams, find_pooling_violations
from core.wire.sampling_params import Violation
from core.wire.tensor import Tensor

_UNSUPPORTED = ("sampling_params", "mm_features", "lora_request", "prompt_embeds", "resumable")


class EmbeddingRequest:
    """Raises RequestError, naming everything that is wrong with ``message``."""

    def __init__(self, message: EngineCoreRequest, info: EncoderInfo, max_model_len: int) -> None:
        params = _read_params(message.pooling_params)
        violations = list(_find_violations(message, params, info, max_model_len))
        if violations:
            raise RequestError(*violations)
        self.request_id = message.request_id
        self.client_index = message.client_index
        self.token_ids = message.prompt_token_ids or []
        self.abort_immediately = message.abort_immediately
        self._is_normalized = info.is_normalized and params.use_activation is not False
        self._size = params.dimensions or info.size
        self._events = [_event(EventType.QUEUED)]

    def note_scheduled(self) -> None:
        self._events.append(_event(EventType.SCHEDULED))

    def output(self, vector: NDArray[np.float32]) -> EngineCoreOutput:
        """``vector`` [size], cut and normalized as asked for; ERROR if it holds a NaN or an infinity."""
        if not np.isfinite(vector).all():
            num_nans = int(np.isnan(vector).sum())
            return EngineCoreOutput(self.request_id, [], finish_reason=FinishReason.ERROR, num_nans_in_logits=num_nans)
        num_tokens = len(self.token_ids)
        return EngineCoreOutput(
            self.request_id,
            [],
            pooling_output=Tensor(self._finished(vector)),
            finish_reason=FinishReason.STOP,
            events=self._events,
            prefill_stats=PrefillStats(num_prompt_tokens=num_tokens, num_computed_tokens=num_tokens),
        )

    def _finished(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        # In this order, as for models that were trained so that the first elements are an embedding of their own.
        cut = np.ascontiguousarray(vector[: self._size])
        return cut / max(float(np.linalg.norm(cut)), 1e-12) if self._is_normalized else cut


def _read_params(pooling_params: object) -> PoolingParams:
    try:
        return msgspec.convert(pooling_params or [], PoolingParams)
    except msgspec.ValidationError as error:
        raise RequestError(Violation("pooling_params", f"cannot be read: {error}")) from error


def _find_violations(
    message: EngineCoreRequest, params: PoolingParams, info: EncoderInfo, max_model_len: int
) -> Iterator[Violation]:
    for field in _UNSUPPORTED:
        if getattr(message, field):
            yield Violation(field, "is not supported by this engine, which embeds")
    token_ids = message.prompt_token_ids or []
    if not 1 <= len(token_ids) <= max_model_len:
        bound = f"in [1, {max_model_len}], max_model_len"
        yield Violation("prompt_token_ids", f"the number of tokens must be {bound}, got {len(token_ids)}")
    elif outside := [token_id for token_id in token_ids if not 0 <= token_id < info.vocab_size]:
        yield Violation("prompt_token_ids", f"must be in [0, {info.vocab_size - 1}], got {outside[0]}")
    yield from find_pooling_violations(params, info.size)


def _event(kind: EventType) -> EngineCoreEvent:
    return EngineCoreEvent(kind, time.monotonic())
