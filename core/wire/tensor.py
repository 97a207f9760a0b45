"""A torch tensor as the wire sees it, without torch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_STORED_AS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
_UNSIGNED = {"bool", "uint8", "uint16", "uint32", "uint64"}
_NUMPY_NAMES = _UNSIGNED | {
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
}


class Tensor:
    """``dtype`` is torch's name without ``torch.``; ``array`` the values, or their bits if numpy has no such type."""

    __slots__ = ("array", "dtype")

    def __init__(self, array: NDArray[Any], dtype: str | None = None) -> None:
        self.array = array
        self.dtype = dtype or array.dtype.name

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}, shape={self.array.shape})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.dtype == other.dtype and np.array_equal(self.array, other.array)

    __hash__ = None  # type: ignore[assignment]


def storage_dtype(torch_name: str) -> np.dtype[Any]:
    """The numpy dtype that stores ``torch_name``. Raises ValueError for a type this wire does not carry."""
    name = _STORED_AS.get(torch_name, torch_name)
    if name not in _NUMPY_NAMES:
        raise ValueError(f"unknown tensor dtype {torch_name!r}")
    return np.dtype(name)
