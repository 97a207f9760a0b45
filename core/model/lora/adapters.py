"""The adapters that a model can run with, and which rows of the running step run with which."""

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path

import torch

from core.model.linear import Linear
from core.model.lora.adapted_linear import AdaptedLinear, AdaptedRows, AdapterWeights
from core.model.lora.peft_folder import LoraPair, PeftFolder

logger = logging.getLogger(__name__)


class Adapters:
    """Adapters by the key they were loaded under. A step may run while another thread loads."""

    def __init__(self, max_rank: int) -> None:
        self._max_rank = max_rank
        self._layers: dict[str, AdaptedLinear] = {}
        self._place = torch.device("cpu"), torch.float32
        self._folders: dict[int, Path] = {}
        self._loaded: dict[int, AdapterWeights] = {}
        self._step: list[AdaptedRows] = []
        self.cut_pair: Callable[[str, LoraPair], LoraPair] | None = None
        """Of a module by name: the part of one rank, if several share the model."""

    def __repr__(self) -> str:
        return f"Adapters({len(self._loaded)} loaded, {len(self._layers)} modules to adapt)"

    @property
    def num_modules(self) -> int:
        """Modules of the model that can be adapted."""
        return len(self._layers)

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """[out_size, in_size] of those modules, by name."""
        return {name: layer.shape_of(name) for name, layer in self._layers.items()}

    def adapt(
        self, base: Linear, parts: Mapping[str, int], in_size: int, device: torch.device, dtype: torch.dtype
    ) -> Linear:
        """``base``, which holds ``parts`` side by side, so that adapters can add to it."""
        layer = AdaptedLinear(base, parts, in_size, self._step)
        self._layers |= dict.fromkeys(parts, layer)
        self._place = device, dtype
        return layer

    def load(self, key: int, folder: Path) -> None:
        """Raises ModelLoadError for what is wrong with the files, or does not fit the model; nothing is kept then."""
        self._loaded[key] = weights = self._read(folder)
        self._folders[key] = folder
        num_bytes = sum(pair.down.nbytes + pair.up.nbytes for pair in weights.values())
        logger.info("adapter %s loaded: %d layers, %.1f MiB", folder, len(weights), num_bytes / 2**20)

    def remove(self, key: int) -> None:
        """Its memory is free when this returns. Not while a step runs; no later one may name it."""
        self._step.clear()
        self._loaded.pop(key, None)
        self._folders.pop(key, None)

    def begin_step(self, spans: Iterable[tuple[int | None, int]]) -> None:
        """The next step's rows in their order: an adapter's key, or None, and how many rows run with it."""
        self._step.clear()
        end = 0
        for key, run in groupby(spans, lambda span: span[0]):
            start, end = end, end + sum(count for _, count in run)
            if key is not None:
                self._step.append(AdaptedRows(slice(start, end), self._loaded[key]))

    def drop(self) -> None:
        """Let go of the model and of what was loaded for it, though not of what it was."""
        self._step.clear()
        self._layers.clear()
        self._loaded.clear()

    def restore(self) -> None:
        """Load again what was dropped, for a model that was loaded again. Raises ModelLoadError."""
        for key, folder in self._folders.items():
            self._loaded[key] = self._read(folder)

    def _read(self, path: Path) -> AdapterWeights:
        folder = PeftFolder(path, self._max_rank)
        by_layer: dict[AdaptedLinear, dict[str, LoraPair]] = {}
        for module, pair in folder.pairs.items():
            layer = self._layers.get(module)
            if layer is None:
                raise folder.reject(module, "is no linear layer of the model")
            pair = self.cut_pair(module, pair) if self.cut_pair else pair
            _check_fits(folder, module, pair, layer.shape_of(module))
            by_layer.setdefault(layer, {})[module] = pair
        return {layer: layer.join(pairs, *self._place) for layer, pairs in by_layer.items()}


def _check_fits(folder: PeftFolder, module: str, pair: LoraPair, shape: tuple[int, int]) -> None:
    found = len(pair.up), pair.down.shape[1]
    if found != shape:
        raise folder.reject(module, f"maps {found[1]} values to {found[0]}, in the model {shape[1]} to {shape[0]}")
