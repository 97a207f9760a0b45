"""What the modules of kernels have: module.cpp in types.

All arrays are C-contiguous and of the type that is named; others raise TypeError, wrong shapes ValueError. None of the
calls holds the interpreter while it computes; of several threads one computes at a time.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


class Matrix(Protocol):
    """Weights as the kernels read them."""

    @property
    def num_outputs(self) -> int: ...

    @property
    def num_inputs(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...


class Linear(Protocol):
    """Matrices of the same inputs, their outputs side by side."""

    @property
    def num_outputs(self) -> int: ...

    @property
    def num_inputs(self) -> int: ...

    def multiply(self, rows: Floats, outputs: Floats) -> None:
        """Put what it makes of ``rows`` [n, num_inputs] into ``outputs`` [n, num_outputs].

        For matrices that are quantized, rows are rounded to 8 bits with a scale for every 32 inputs. A row's outputs
        are the same, to the bit, whatever rows are with it.
        """
        ...


class PagedCache(Protocol):
    """Keys and values of all layers, where their arrays are."""


class Layer(Protocol):
    """One layer of a decoder."""


class Decoder(Protocol):
    """The layers of a decoder and its last norm."""

    def forward(self, hidden: Floats, spans: Ints, tables: Sequence[Ints], cache: PagedCache) -> None:
        """Make normalized hidden states of the inputs ``hidden`` [rows, hidden_size], in their place.

        ``spans`` [requests, 2]: how many of the rows are each one's, and the position of the first. ``tables``, by
        group of layers [requests, blocks]: where its keys and values are, and those of the rows go.
        """
        ...


class Kernels(Protocol):
    """A module."""

    __name__: str

    def set_num_threads(self, count: int) -> None:
        """That compute, the calling one among them. Raises ValueError below 1."""
        ...

    def pack_affine(self, quants: NDArray[np.uint8], scales: Floats, offsets: Floats, group: int, bits: int) -> Matrix:
        """Of the arrays of ``core.model.weights.affine_rows.AffineRows``."""
        ...

    def pack_dense(self, weights: Floats) -> Matrix:
        """Of float32 [outputs, inputs]."""
        ...

    def Linear(self, parts: Sequence[Matrix], bias: Floats | None = None) -> Linear:  # noqa: N802 - a class
        """``bias`` [outputs of all parts]."""
        ...

    def PagedCache(  # noqa: N802
        self, keys: Sequence[NDArray[Any]], values: Sequence[NDArray[Any]], groups: Sequence[int], block_size: int
    ) -> PagedCache:
        """For each layer an array of keys, one of values, as attention.h has them, and the group of its blocks.

        They are float32, or uint16 with the bits of float16; ``block_size`` is a multiple of 16.
        """
        ...

    def Layer(self, **parts: Any) -> Layer:  # noqa: N802
        """By the names of module.cpp."""
        ...

    def Decoder(self, **parts: Any) -> Decoder:  # noqa: N802
        """By the names of module.cpp."""
        ...
