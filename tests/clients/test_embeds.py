"""Arrays as the proto has them, whatever holds them."""

from array import array
from typing import Any

import numpy as np
import pytest

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate_client.embeds import embeds_message
from sluicegate_client.requests import generate_request

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


class _Tensor:
    """What is no buffer but becomes an array, as a tensor of torch does."""

    def __array__(self) -> Any:
        return ROWS


@pytest.mark.parametrize(
    "rows",
    [ROWS, np.asfortranarray(ROWS), _Tensor(), memoryview(array("f", range(6))).cast("B").cast("f", (2, 3))],
    ids=["an array", "a transposed array", "what becomes an array", "a buffer"],
)
def test_rows_are_sent_one_after_the_other(rows: Any) -> None:
    """Two rows of three."""
    expected = pb.PromptEmbeds(num_tokens=2, hidden_size=3, dtype=pb.EMBEDS_DTYPE_FLOAT32, data=ROWS.tobytes())
    assert embeds_message(rows) == expected
    assert generate_request(None, {"prompt_embeds": rows}).prompt_embeds == expected


def test_half_precision_is_sent_as_it_is() -> None:
    """Two bytes an element."""
    message = embeds_message(ROWS.astype(np.float16))
    assert (message.dtype, len(message.data)) == (pb.EMBEDS_DTYPE_FLOAT16, 12)


@pytest.mark.parametrize("rows", [ROWS.astype(np.float64), ROWS[0], ROWS.astype(">f4"), ROWS.astype(np.int32)])
def test_what_is_no_matrix_of_floats_is_refused(rows: Any) -> None:
    """By what it is."""
    with pytest.raises(ValueError, match=r"2 dimensions .* of float32 or float16, got"):
        embeds_message(rows)


def test_a_list_is_refused() -> None:
    """Python's own error says what is needed."""
    with pytest.raises(TypeError, match="bytes-like"):
        embeds_message([[1.0, 2.0]])
