"""Arrays of numbers as the proto has them, without NumPy."""

import sys
from typing import Any

from sluicegate.v1 import inference_service_pb2 as pb

_DTYPES = {"f": pb.EMBEDS_DTYPE_FLOAT32, "e": pb.EMBEDS_DTYPE_FLOAT16}


def embeds_message(rows: Any) -> pb.PromptEmbeds:
    """``rows`` is a buffer such as a NumPy array, or has ``__array__``, such as a tensor of torch.

    Raises TypeError for what is neither, ValueError unless it has two dimensions of float32 or float16.
    """
    view = memoryview(rows.__array__() if hasattr(rows, "__array__") else rows)
    if view.shape is None or len(view.shape) != 2 or view.format not in _DTYPES:
        got = f"{view.ndim} of format {view.format!r}"
        raise ValueError(f"prompt_embeds must have 2 dimensions (tokens, elements) of float32 or float16, got {got}")
    if sys.byteorder != "little":
        raise ValueError("prompt_embeds can be sent from little-endian machines only")
    num_tokens, hidden_size = view.shape
    dtype = _DTYPES[view.format]
    return pb.PromptEmbeds(num_tokens=num_tokens, hidden_size=hidden_size, dtype=dtype, data=view.tobytes())
