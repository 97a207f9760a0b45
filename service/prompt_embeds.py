"""A prompt that comes as rows in place of the model's own embeddings of tokens."""

import numpy as np

from core.wire.sampling_params import Violation
from core.wire.tensor import Tensor, storage_dtype
from service.served_model import ServedModel
from sluicegate.v1 import inference_service_pb2 as pb

MAX_EMBEDS_BYTES = 2**30
"""Of all requests that are live; ``n`` sequences count n times, as the core gets the rows of each."""
_DTYPES = {
    pb.EMBEDS_DTYPE_UNSPECIFIED: "float32",
    pb.EMBEDS_DTYPE_FLOAT32: "float32",
    pb.EMBEDS_DTYPE_BFLOAT16: "bfloat16",
    pb.EMBEDS_DTYPE_FLOAT16: "float16",
}


def read_prompt_embeds(request: pb.GenerateRequest, model: ServedModel, violations: list[Violation]) -> Tensor | None:
    """The rows [num_tokens, hidden_size]; None if something is wrong, which is added to ``violations``.

    That the numbers are finite is the core's to check.
    """
    given = request.prompt_embeds
    found = [*_pair_violations(request), *_shape_violations(given, model)]
    violations += found
    if found:
        return None
    dtype = _DTYPES[given.dtype]
    rows = np.frombuffer(given.data, storage_dtype(dtype).newbyteorder("<"))
    return Tensor(rows.reshape(given.num_tokens, given.hidden_size), dtype)


def _pair_violations(request: pb.GenerateRequest) -> list[Violation]:
    """What has a meaning for tokens only."""
    given, bound, found = request.sampling_params, "must be unset with prompt_embeds", []
    if given.HasField("prompt_logprobs"):
        found.append(Violation("sampling_params.prompt_logprobs", f"{bound}: a row is no token to score"))
    if given.HasField("truncate_prompt_tokens"):
        found.append(Violation("sampling_params.truncate_prompt_tokens", f"{bound}: send the rows that are to stay"))
    return found


def _shape_violations(given: pb.PromptEmbeds, model: ServedModel) -> list[Violation]:
    dtype = _DTYPES.get(given.dtype)
    if dtype is None:
        return [Violation("prompt_embeds.dtype", f"must be a value of EmbedsDtype, got {given.dtype}")]
    if given.num_tokens < 1:
        return [Violation("prompt_embeds.num_tokens", "must be at least 1, got 0")]
    if given.hidden_size < 1 or model.hidden_size not in (None, given.hidden_size):
        bound = "at least 1" if model.hidden_size is None else f"{model.hidden_size}, the model's hidden size"
        return [Violation("prompt_embeds.hidden_size", f"must be {bound}, got {given.hidden_size}")]
    expected = given.num_tokens * given.hidden_size * storage_dtype(dtype).itemsize
    if len(given.data) != expected:
        shape = f"{given.num_tokens} rows of {given.hidden_size} {dtype}"
        return [Violation("prompt_embeds.data", f"must have {expected} bytes for {shape}, got {len(given.data)}")]
    return []
