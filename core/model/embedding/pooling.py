"""How one vector is made of a text's hidden states: what the files of sentence-transformers say of it.

modules.json lists the steps: Transformer, Pooling (its own config.json says which) and, perhaps, Normalize.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from core.model.weights.settings import read_json
from core.model.weights.weight_source import ModelLoadError

MODULES_FILE = "modules.json"
"""A folder that has it holds an embedding model."""
_STEPS = ("Transformer", "Pooling", "Normalize")
_MODE_PREFIX = "pooling_mode_"


class Pooling(NamedTuple):
    """``pool`` maps hidden states [texts, tokens, size] and their mask [texts, tokens] to vectors [texts, size]."""

    pool: Callable[[Tensor, Tensor], Tensor]
    is_normalized: bool
    max_tokens: int | None
    """Of a text, special tokens included; None: the model's own limit."""


def read_pooling(folder: Path) -> Pooling:
    """Raises ModelLoadError, with the file and what in it is wrong or not supported."""
    steps = {_step_name(folder, module): module for module in read_json(folder / MODULES_FILE, list)}
    if missing := [name for name in ("Transformer", "Pooling") if name not in steps]:
        raise ModelLoadError(f"{folder / MODULES_FILE}: there is no {missing[0]} step")
    settings = folder / str(steps["Pooling"].get("path", "1_Pooling")) / "config.json"
    return Pooling(_read_mode(settings), "Normalize" in steps, _read_max_tokens(folder))


def _step_name(folder: Path, module: Mapping[str, Any]) -> str:
    kind = str(module.get("type")).rpartition(".")[2]
    if kind not in _STEPS:
        allowed = ", ".join(_STEPS)
        raise ModelLoadError(f"{folder / MODULES_FILE}: a step of type {kind!r:.50} is not supported, only {allowed}")
    return kind


def _read_mode(path: Path) -> Callable[[Tensor, Tensor], Tensor]:
    settings = read_json(path)
    newer = settings.get("pooling_mode")  # Recent releases write one word for the many flags of older ones.
    modes = [newer] if newer else [k.removeprefix(_MODE_PREFIX) for k, on in settings.items() if on is True]
    modes = [mode for mode in modes if mode != "include_prompt"]
    if len(modes) != 1 or modes[0] not in _POOLS:
        known = ", ".join(sorted(_POOLS))
        raise ModelLoadError(f"{path}: the pooling mode must be one of {known}, got {', '.join(map(str, modes))!r:.80}")
    return _POOLS[modes[0]]


def _read_max_tokens(folder: Path) -> int | None:
    path = folder / "sentence_bert_config.json"
    longest = read_json(path).get("max_seq_length") if path.exists() else None
    if longest is not None and (type(longest) is not int or longest < 1):
        raise ModelLoadError(f"{path}: max_seq_length must be an integer of at least 1, got {longest!r:.50}")
    return longest


def _mean(hidden: Tensor, mask: Tensor) -> Tensor:
    weights = mask[:, :, None].to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1)


def _first(hidden: Tensor, _: Tensor) -> Tensor:
    return hidden[:, 0]


def _last(hidden: Tensor, mask: Tensor) -> Tensor:
    return hidden.gather(1, (mask.sum(1) - 1)[:, None, None].expand(-1, 1, hidden.shape[2]))[:, 0]


def _maximum(hidden: Tensor, mask: Tensor) -> Tensor:
    return hidden.masked_fill(mask[:, :, None] == 0, float("-inf")).amax(1)


_POOLS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean_tokens": _mean,
    "mean": _mean,
    "cls_token": _first,
    "cls": _first,
    "lasttoken": _last,
    "max_tokens": _maximum,
    "max": _maximum,
}
