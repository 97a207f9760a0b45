"""service.embedding: one output is the vector, or an error that says what the caller can do."""

import numpy as np
import pytest

from core.wire.messages import REFUSED, EngineCoreOutput, FinishReason
from core.wire.tensor import Tensor
from service.embedding import Embedding, EmbeddingRequest
from service.errors import Internal, InvalidRequest, ServiceError, Unavailable


def embedding() -> Embedding:
    return Embedding(EmbeddingRequest("r", [1, 2, 3]))


def output(
    tensor: Tensor | None = None, reason: FinishReason = FinishReason.STOP, stop_reason: str | None = None
) -> EngineCoreOutput:
    return EngineCoreOutput("r", [], pooling_output=tensor, finish_reason=reason, stop_reason=stop_reason)


def bfloat16(*values: float) -> Tensor:
    return Tensor((np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16), "bfloat16")


@pytest.mark.parametrize("tensor", [Tensor(np.array([0.5, -2], np.float32)), bfloat16(0.5, -2)])
def test_the_vector_of_whatever_type_the_core_has(tensor: Tensor) -> None:
    """float32, and bfloat16, which numpy does not have."""
    work = embedding()
    (embedded,) = work.feed(output(tensor))
    assert (embedded.vector, embedded.num_prompt_tokens, work.finished) == ([0.5, -2], 3, True)


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (output(), Internal),
        (output(Tensor(np.array([], np.float32))), Internal),
        (output(Tensor(np.array([[1.0]], np.float32))), Internal),
        (output(Tensor(np.array([1, 2]))), Internal),
        (output(Tensor(np.array([np.nan], np.float32))), Internal),
        (output(reason=FinishReason.ERROR), Internal),
        (output(reason=FinishReason.ERROR, stop_reason=f"{REFUSED}too long"), InvalidRequest),
        (output(reason=FinishReason.ABORT), Unavailable),
    ],
)
def test_what_is_no_vector_is_an_error(last: EngineCoreOutput, error: type[ServiceError]) -> None:
    """Ours, the caller's, or nobody's."""
    with pytest.raises(error):
        embedding().feed(last)
