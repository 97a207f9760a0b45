"""The types that a model may be computed in, by name."""

import torch

_DTYPES = {
    "auto": torch.float32,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def find_dtype(name: str) -> torch.dtype:
    """Raises ValueError for a name that is none."""
    if name not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, got {name!r}")
    return _DTYPES[name]
