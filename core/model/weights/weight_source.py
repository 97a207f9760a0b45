"""A model's tensors under their Hugging Face names, whatever file holds them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from torch import Tensor

from core.model.architecture import Architecture
from core.model.tensor_group import TensorGroup
from core.model.weights.affine_rows import AffineRows

RowTable = Callable[[Tensor], Tensor]
"""Maps ids int64 [n] to float32 rows [n, columns]."""


class ModelLoadError(ValueError):
    """The model cannot be loaded; the message names the file and what in it is wrong."""


class StoredTensor(Protocol):
    """One tensor as the file holds it: perhaps quantized, perhaps mapped and not read yet."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def dense(self) -> Tensor:
        """All of it in float32."""
        ...

    def part(self, dim: int, places: range) -> Tensor:
        """In float32 what it has at ``places`` along ``dim``, without reading much more of the file."""
        ...

    def affine_part(self, dim: int, places: range) -> AffineRows | None:
        """The same of a matrix whose weights are quantized so; None of others, and if ``places`` cut a block of 32."""
        ...

    def row_table(self) -> RowTable:
        """Row lookup in a copy that stays in the file's own format, for embeddings."""
        ...


class WeightSource:
    """Hands out tensors by name and remembers which were taken, so that none is overlooked.

    Raises ModelLoadError for an architecture whose numbers do not fit together.
    """

    group: TensorGroup | None = None
    """The ranks that share the model, if the tensors are those of one of them."""

    def __init__(self, path: Path, architecture: Architecture, tensors: Mapping[str, StoredTensor]) -> None:
        _check(path, architecture)
        self.architecture = architecture
        self._path = path
        self._tensors = tensors
        self._taken: set[str] = set()

    def __repr__(self) -> str:
        return f"WeightSource({self._path}, {self.architecture.family}, {len(self._tensors)} tensors)"

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def dense(self, name: str, shape: tuple[int, ...], rows: range | None = None) -> Tensor:
        """The tensor, or some rows of it, in float32. Raises ModelLoadError if it is missing or has another shape."""
        stored = self._take(name, shape)
        return stored.dense() if rows is None else stored.part(0, rows)

    def affine(self, name: str, shape: tuple[int, int], rows: range | None = None) -> AffineRows | None:
        """The matrix, or some rows of it, as the file has it quantized; None if it is not, or in another way.

        Raises ModelLoadError as ``dense`` does, which is there for all tensors.
        """
        return self._take(name, shape).affine_part(0, range(shape[0]) if rows is None else rows)

    def row_table(self, name: str, shape: tuple[int, ...]) -> RowTable:
        """Row lookup in the tensor. Raises ModelLoadError as ``dense`` does."""
        return self._take(name, shape).row_table()

    def mapped(
        self, architecture: Architecture, part: Callable[[str, StoredTensor], StoredTensor], group: TensorGroup
    ) -> "WeightSource":
        """Of the tensors that ``part`` makes of these, by their names: what one rank of ``group`` has of them."""
        tensors = {name: part(name, stored) for name, stored in self._tensors.items()}
        source = WeightSource(self._path, architecture, tensors)
        source.group = group
        return source

    def check_all_taken(self) -> None:
        """A tensor the model code does not know means that its results would be wrong: ModelLoadError."""
        left = sorted(set(self._tensors) - self._taken)
        if left:
            raise ModelLoadError(f"{self._path}: unexpected tensor {left[0]} ({len(left)} in all)")

    def _take(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        stored = self._tensors.get(name)
        if stored is None:
            raise ModelLoadError(f"{self._path}: tensor {name} is missing")
        if stored.shape != shape:
            raise ModelLoadError(f"{self._path}: tensor {name} has shape {list(stored.shape)}, expected {list(shape)}")
        self._taken.add(name)
        return stored


def _check(path: Path, architecture: Architecture) -> None:
    a = architecture
    if a.num_heads % a.num_kv_heads:
        raise ModelLoadError(
            f"{path}: {a.num_heads} attention heads cannot share {a.num_kv_heads} key-value heads evenly"
        )
    if a.head_size % 2:
        raise ModelLoadError(f"{path}: the head size must be even to be rotated, got {a.head_size}")
