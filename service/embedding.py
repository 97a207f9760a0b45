"""One text on its way to its vector: how it is put to the core, and what the core's output means. Pure: no sockets."""

import secrets
import time
from dataclasses import dataclass

import msgspec
import numpy as np

from core.wire.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from core.wire.pooling_params import EMBED_TASK, PoolingParams
from core.wire.tensor import Tensor
from service.calls.call import current_call
from service.errors import Internal, Unavailable, shown
from service.refusal import raise_if_refused


@dataclass(frozen=True)
class EmbeddingRequest:
    """As the gateway works with it: checked, complete. ``dimensions`` None: the model's own."""

    request_id: str
    prompt_token_ids: list[int]
    dimensions: int | None = None
    is_normalized: bool = True
    num_sequences: int = 1
    num_embeds_bytes: int = 0
    num_listed_tokens: int = 0
    fills_kv_cache: bool = False
    priority: int = 0
    may_differ: bool = False

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)


class Embedded(msgspec.Struct, frozen=True):
    """The vector, of the model's or the asked-for size."""

    vector: list[float]
    num_prompt_tokens: int


class Embedding:
    """``request`` under an id of its own in the core. It is answered by one output."""

    def __init__(self, request: EmbeddingRequest) -> None:
        self.request = request
        self.core_ids = [f"{request.request_id}-{secrets.token_hex(4)}"]
        self.finished = False

    def __repr__(self) -> str:
        return f"Embedding({self.request.request_id!r}{', finished' if self.finished else ''})"

    def core_requests(self) -> list[EngineCoreRequest]:
        use_activation = None if self.request.is_normalized else False
        params = PoolingParams(use_activation, self.request.dimensions, task=EMBED_TASK)
        (core_id,), call = self.core_ids, current_call()
        return [
            EngineCoreRequest(
                request_id=core_id,
                prompt_token_ids=self.request.prompt_token_ids,
                mm_features=None,
                sampling_params=None,
                pooling_params=params,
                arrival_time=time.time(),
                lora_request=None,
                cache_salt=None,
                data_parallel_rank=None,
                trace_headers=call.trace_headers if call is not None else None,
                external_req_id=self.request.request_id,
            )
        ]

    def feed(self, output: EngineCoreOutput) -> list[Embedded]:
        """The vector. Raises InvalidRequest if the core refused it, Unavailable if it was aborted, Internal."""
        name = self.request.request_id
        if output.finish_reason is FinishReason.ABORT:
            raise Unavailable(f"request {shown(name)} was aborted", reason="ABORTED")
        if output.finish_reason is FinishReason.ERROR:
            raise_if_refused(name, output.stop_reason)
        vector = _read_vector(output.pooling_output)
        if vector is None:
            cause = f"{output.finish_reason!r} {output.stop_reason} with {output.pooling_output}"
            raise Internal(f"the engine failed at request {shown(name)}", reason="ENGINE_ERROR", cause=cause)
        self.finished = True
        return [Embedded(vector, self.request.num_prompt_tokens)]


def _read_vector(output: Tensor | None) -> list[float] | None:
    """None unless it is one vector of finite numbers."""
    if output is None or output.array.ndim != 1 or not output.array.size:
        return None
    array = output.array
    if output.dtype == "bfloat16":  # Stored as bits: the upper half of a float32's.
        array = (array.astype(np.uint32) << 16).view(np.float32)
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        return None
    vector: list[float] = array.tolist()
    return vector
