"""Prompts that are not made of tokens alone: rows that stand where the model's own embeddings of tokens would.

All of a prompt may be rows, or some positions of it, named by ``prompt_is_token_ids``. As in vLLM, ``prompt_embeds``
then has a row for every position, and ``prompt_token_ids`` an id; of each position only the one it names is looked at.
"""

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from core.wire.messages import EngineCoreRequest
from core.wire.sampling_params import Violation
from core.wire.tensor import Tensor

PLACEHOLDER_TOKEN_ID = 0
"""Stands in the token ids where a row is the input. It means nothing, and nothing may look at it."""
_DTYPES = ("float32", "bfloat16", "float16")
_BFLOAT16_EXPONENT = 0x7F80


class PromptEmbeds(msgspec.Struct):
    """``rows`` [num_tokens, hidden_size], each the input at its position unless ``is_token`` bool [num_tokens]."""

    rows: Tensor
    is_token: NDArray[np.bool_]

    @classmethod
    def of(cls, request: EngineCoreRequest) -> "PromptEmbeds | None":
        """Those of a request without violations; None if its prompt is tokens alone."""
        if request.prompt_embeds is None:
            return None
        mask = request.prompt_is_token_ids or [False] * len(request.prompt_embeds.array)
        return cls(request.prompt_embeds, np.array(mask, np.bool_))

    def content(self, start: int, stop: int) -> bytes | None:
        """The rows among the inputs at [start, stop): no others give these bytes. None if there are none."""
        places = np.flatnonzero(~self.is_token[start:stop])
        if not places.size:
            return None
        head = f"{self.rows.dtype}:{places.size}:".encode()
        return head + places.astype("<i4").tobytes() + self.rows.array[start + places].tobytes()


def prompt_tokens(request: EngineCoreRequest) -> list[int]:
    """One token id for each position of the prompt of a request without violations."""
    if request.prompt_embeds is None:
        return list(request.prompt_token_ids or ())
    if not request.prompt_is_token_ids:
        return [PLACEHOLDER_TOKEN_ID] * len(request.prompt_embeds.array)
    positions = zip(request.prompt_token_ids or (), request.prompt_is_token_ids, strict=True)
    return [token_id if is_token else PLACEHOLDER_TOKEN_ID for token_id, is_token in positions]


def find_embeds_violations(
    rows: Tensor, token_ids: list[int] | None, is_token_ids: list[bool] | None, hidden_size: int
) -> Iterator[Violation]:
    """What is wrong with a prompt of ``rows``, its length and its tokens left aside."""
    shape = rows.array.shape
    if rows.dtype not in _DTYPES:
        yield Violation("prompt_embeds", f"must be of dtype {', '.join(_DTYPES)}, got {rows.dtype}")
    elif len(shape) != 2 or shape[0] < 1 or shape[1] != hidden_size:
        bound = f"[num_tokens, {hidden_size}], at least one token of the model's hidden size"
        yield Violation("prompt_embeds", f"must have shape {bound}, got {list(shape)}")
    else:
        yield from _mask_violations(shape[0], token_ids, is_token_ids)
        yield from _value_violations(rows)


def _mask_violations(
    num_tokens: int, token_ids: list[int] | None, is_token_ids: list[bool] | None
) -> Iterator[Violation]:
    """Tokens and mask come together, each as long as the rows."""
    if token_ids is None and is_token_ids is None:
        return
    bound = f"must have an element for each of the {num_tokens} rows of prompt_embeds"
    for field, given in (("prompt_token_ids", token_ids), ("prompt_is_token_ids", is_token_ids)):
        if given is None:
            yield Violation(field, f"{bound} if the other of tokens and mask is given")
        elif len(given) != num_tokens:
            yield Violation(field, f"{bound}, got {len(given)}")


def _value_violations(rows: Tensor) -> Iterator[Violation]:
    is_finite = _finite(rows)
    if not is_finite.all():
        position, column = (int(index) for index in np.argwhere(~is_finite)[0])
        yield Violation("prompt_embeds", f"must be finite, got NaN or infinity at position {position}, column {column}")


def _finite(rows: Tensor) -> NDArray[np.bool_]:
    if rows.dtype == "bfloat16":
        return np.asarray(rows.array & _BFLOAT16_EXPONENT != _BFLOAT16_EXPONENT)
    return np.asarray(np.isfinite(rows.array))
