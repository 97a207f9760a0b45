"""What a front end asks of an embedding model."""

from typing import Any

import msgspec

from core.wire.sampling_params import Violation

EMBED_TASK = "embed"
_FINAL_ONLY = 2


class PoolingParams(msgspec.Struct, array_like=True):
    """A msgpack array on the wire, in this order. Releases add fields: what comes may be shorter or longer.

    ``use_activation`` None or true: the vector is normalized if the model's files say so; false: it is not.
    """

    use_activation: bool | None = None
    dimensions: int | None = None
    step_tag_id: int | None = None
    returned_token_ids: list[int] | None = None
    task: str | None = None
    requires_token_ids: bool = False
    skip_reading_prefix_cache: bool | None = None
    late_interaction_params: Any = None
    extra_kwargs: dict[str, Any] | None = None
    output_kind: int = _FINAL_ONLY


_UNSUPPORTED = ("step_tag_id", "returned_token_ids", "late_interaction_params")


def find_pooling_violations(params: PoolingParams, size: int) -> list[Violation]:
    """What is out of bounds for a model whose vectors have ``size`` elements."""
    found = [
        Violation(f"pooling_params.{field}", "is not supported by this engine")
        for field in _UNSUPPORTED
        if getattr(params, field)
    ]
    if params.task not in (None, EMBED_TASK):
        found.append(Violation("pooling_params.task", f"must be {EMBED_TASK!r}, got {params.task!r:.50}"))
    if params.dimensions is not None and not 1 <= params.dimensions <= size:
        found.append(Violation("pooling_params.dimensions", f"must be in [1, {size}], got {params.dimensions}"))
    return found
