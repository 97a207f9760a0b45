"""Whether a model of transformers is one that the paged KV cache serves right, found out by running it.

A list of names would be wrong with the next release, and a model that is served wrongly looks as if it were served. So
a handful of tokens run through the loaded model, with an attention in which each token sees itself alone:

1. Every layer calls our attention once, with nothing that it would have to honour and does not, and with a mask that
   is causal, or causal with a window.
2. Layers and head taken apart give the logits of the model as it is.
3. Nothing else mixes tokens: a token's queries, keys, values and outputs are the same among other tokens, in another
   order, and alone. Recurrent layers, convolutions and rotations that depend on the longest text do not pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from core.model.hf.attention import AttentionCall, CausalMask, Layer, MaskFunction
from core.model.hf.parts import ModelParts
from core.model.model import AttentionRule

_TOLERANCE = {torch.float32: 1e-3}
_ROUNDED_TOLERANCE = 0.2
"""Relative to a row's norm. Mixing tokens changes rows by about their norm; rounding may choose another expert."""
_MEANS_NOTHING = frozenset({"position_ids", "use_cache", "output_attentions", "output_hidden_states"})
_HONOURED = frozenset({"scaling", "sliding_window", "softcap", "s_aux"})


class UnservableError(Exception):
    """The model cannot be served; the message says why."""


@dataclass(frozen=True)
class Probed:
    """What was found: the layers by the modules that call, the size of a token's input, and some tokens' logits."""

    layers: dict[nn.Module, Layer]
    hidden_size: int
    logits: Tensor

    @property
    def vocab_size(self) -> int:
        return self.logits.shape[1]


def probe(parts: ModelParts, limit: int) -> Probed:
    """``limit``: the longest context to serve, in tokens. Raises UnservableError."""
    token_ids = _token_ids(parts)
    inputs = parts.embed(token_ids)
    recorder = _Recorder(limit, token_ids.device)
    hidden = parts.hidden(inputs, torch.arange(len(token_ids), device=token_ids.device), recorder)
    layers = recorder.layers()
    _check_tokens_are_apart(parts, _Rows(inputs, limit), layers)
    logits = parts.logits(hidden)
    if not _agree([logits], [parts.whole(token_ids, _Recorder(limit, token_ids.device))]):
        raise UnservableError("its layers and its head, taken apart, do not give the logits of the model as it is")
    if parts.num_embeddings < logits.shape[1]:
        raise UnservableError(f"it has {logits.shape[1]} logits and inputs for {parts.num_embeddings} tokens only")
    return Probed(layers, inputs.shape[1], logits)


def check_unchanged(parts: ModelParts, found: Probed) -> None:
    """Whether the model, in which layers were replaced, still gives what was found. Raises UnservableError."""
    token_ids = _token_ids(parts)
    hidden = parts.hidden(parts.embed(token_ids), torch.arange(len(token_ids), device=token_ids.device), _Apart())
    if not _agree([found.logits], [parts.logits(hidden)]):
        raise UnservableError("it does not give the same with the core's linear layers")


def run_apart(parts: ModelParts) -> int:
    """Puts some tokens through the layers, each by itself. Returns how many."""
    token_ids = _token_ids(parts)
    parts.hidden(parts.embed(token_ids), token_ids, _Apart())
    return len(token_ids)


def _token_ids(parts: ModelParts) -> Tensor:
    return torch.arange(3, 3 + _Rows.NUM, device=parts.model.device)


class _Recorder:
    """Receives the calls of one pass. Each token sees itself alone, so it gets its own value."""

    def __init__(self, limit: int, device: torch.device) -> None:
        self._limit, self._device = limit, device
        self.calls: list[AttentionCall] = []

    def attend(self, call: AttentionCall) -> Tensor:
        self.calls.append(call)
        groups, left = divmod(call.query.shape[1], call.key.shape[1])
        if left or call.key.shape[:3] != call.value.shape[:3] or call.query.shape[-1] != call.key.shape[-1]:
            shapes = ", ".join(str(list(part.shape)) for part in (call.query, call.key, call.value))
            raise UnservableError(f"queries, keys and values have shapes that do not belong together: {shapes}")
        return call.value.repeat_interleave(groups, 1).transpose(1, 2).contiguous()

    def mask(self, sees: MaskFunction, padding: Tensor | None) -> CausalMask:
        if padding is not None:
            raise UnservableError("it brings a padding mask of its own")
        return CausalMask(_window(sees, self._limit, self._device))

    def layers(self) -> dict[nn.Module, Layer]:
        if not self.calls:
            raise UnservableError("its attention does not go through transformers' attention interface")
        layers: dict[nn.Module, Layer] = {}
        for call in self.calls:
            if call.module in layers:
                raise UnservableError(f"{type(call.module).__name__} attends more than once for a token")
            layers[call.module] = _layer(len(layers), call, self._limit)
        sizes = {(layer.num_kv_heads, layer.head_size) for layer in layers.values()}
        if len(sizes) > 1:
            raise UnservableError(f"its layers differ in key-value heads and head size: {sorted(sizes)}")
        return layers

    def rows(self, hidden: Tensor) -> list[Tensor]:
        """[tokens, …] of all that was computed of each token."""
        parts = [part for call in self.calls for part in (call.query, call.key, call.value)]
        return [hidden, *(part[0].transpose(0, 1).flatten(1) for part in parts)]


def _layer(index: int, call: AttentionCall, limit: int) -> Layer:
    if not isinstance(call.mask, CausalMask):
        raise UnservableError("it does not take its masks from transformers' mask interface, or changes them")
    _check_arguments(call.arguments, call.mask.window, limit)
    key_size, value_size = call.key.shape[-1], call.value.shape[-1]
    scale, sinks = call.arguments.get("scaling"), call.arguments.get("s_aux")
    if not isinstance(scale, float | int | None):
        raise UnservableError("its attention has scales of several sorts in one layer")
    if sinks is not None and sinks.shape != call.query.shape[1:2]:
        raise UnservableError(f"its attention sinks have shape {list(sinks.shape)}, not one for each head")
    scale = key_size**-0.5 if scale is None else scale
    rule = AttentionRule(scale, call.mask.window, call.arguments.get("softcap"), sinks)
    return Layer(index, rule, call.key.shape[1], max(key_size, value_size), value_size)


def _check_arguments(arguments: Mapping[str, Any], window: int | None, limit: int) -> None:
    given = {name: value for name, value in arguments.items() if value is not None and name not in _MEANS_NOTHING}
    if given.pop("dropout", 0.0) != 0.0 or not given.pop("is_causal", True):
        raise UnservableError("its attention is not causal, or drops out at random")
    foreign = sorted(set(given) - _HONOURED)
    if foreign:
        raise UnservableError(f"its attention needs {', '.join(foreign)}, which the core's does not have")
    argument = given.get("sliding_window")
    if argument is not None and argument != window and argument < limit:
        raise UnservableError(f"its mask has a window of {window} tokens, its argument sliding_window is {argument}")


def _window(sees: MaskFunction, limit: int, device: torch.device) -> int | None:
    """How many tokens the last of ``limit`` sees, if there are others; some more are asked whether it is so for all."""
    keys, nothing = torch.arange(limit, device=device), torch.tensor(0, device=device)

    def seen_by(queries: Tensor) -> Tensor:
        return sees(nothing, nothing, queries[:, None], keys[None]).expand(len(queries), limit)

    last = int(seen_by(keys[-1:]).sum())
    asked = {0, 1, limit // 3, limit // 2, limit - 1, last - 1, last, last + 1, 2 * last - 1, 2 * last}
    queries = torch.tensor(sorted(query for query in asked if 0 <= query < limit), device=device)
    distance = queries[:, None] - keys[None]
    if not torch.equal(seen_by(queries), (distance >= 0) & (distance < last)):
        raise UnservableError("its mask is neither causal nor causal with a sliding window")
    return None if last == limit else last


class _Rows:
    """Tokens to run in different company. The first ``NUM_KEPT`` are in both batches, each after another one."""

    NUM, NUM_KEPT = 6, 4

    def __init__(self, inputs: Tensor, limit: int) -> None:
        far = [0, min(17, limit // 4), limit // 3, limit // 2, limit - 2, limit - 1]
        self.positions = torch.tensor(far, device=inputs.device).clamp_min(0)
        self.inputs = inputs

    def batch(self) -> tuple[Tensor, Tensor]:
        return self.inputs, self.positions

    def other_batch(self) -> tuple[Tensor, Tensor, list[int]]:
        """In another order, and without the far positions. Last: where the kept rows are."""
        order, places = [4, 3, 1, 5, 0, 2], [4, 2, 5, 1]
        near = self.positions.clone()
        near[self.NUM_KEPT :] = near[1]
        inputs = self.inputs.clone()
        inputs[self.NUM_KEPT :] = self.inputs[: self.NUM - self.NUM_KEPT].flip(0)
        return inputs[order], near[order], places


def _check_tokens_are_apart(parts: ModelParts, rows: _Rows, layers: Mapping[nn.Module, Layer]) -> None:
    inputs, positions, places = rows.other_batch()
    expected = [part[: rows.NUM_KEPT] for part in _run(parts, *rows.batch(), layers)]
    found = [part[places] for part in _run(parts, inputs, positions, layers)]
    alone = _run(parts, inputs[places[1:2]], positions[places[1:2]], layers)
    if not _agree(expected, found) or not _agree([part[1:2] for part in expected], alone):
        raise UnservableError(
            "what it computes of a token depends on others outside of its attention (recurrent or convolutional "
            "layers, rotations that change with the longest text)"
        )


def _run(parts: ModelParts, inputs: Tensor, positions: Tensor, layers: Mapping[nn.Module, Layer]) -> list[Tensor]:
    """All that is computed of each token. Raises UnservableError unless the layers attend by the rules they had."""
    recorder = _Apart()
    hidden = parts.hidden(inputs, positions, recorder)
    if _constants(recorder.layers()) != _constants(layers):
        raise UnservableError("the scale or soft-cap of its attention depends on what is in a batch")
    return recorder.rows(hidden)


def _constants(layers: Mapping[nn.Module, Layer]) -> list[tuple[nn.Module, float, float | None]]:
    return [(module, layer.rule.scale, layer.rule.softcap) for module, layer in layers.items()]


class _Apart(_Recorder):
    """Like the recorder; the positions are no text's, so the masks say nothing."""

    def __init__(self) -> None:
        super().__init__(1, torch.device("cpu"))

    def mask(self, sees: MaskFunction, padding: Tensor | None) -> CausalMask:  # noqa: ARG002
        return CausalMask()


def _agree(expected: Sequence[Tensor], found: Sequence[Tensor]) -> bool:
    """Whether all rows do, in each of the pairs; most of them where rounding may choose another expert."""
    return len(expected) == len(found) and all(_rows_agree(*pair) for pair in zip(expected, found, strict=True))


def _rows_agree(expected: Tensor, found: Tensor) -> bool:
    if expected.shape != found.shape:
        return False
    error = (expected.float() - found.float()).norm(dim=-1)
    allowed = expected.float().norm(dim=-1) * _TOLERANCE.get(expected.dtype, _ROUNDED_TOLERANCE)
    return bool((error <= allowed).float().mean() >= (1.0 if expected.dtype in _TOLERANCE else 0.5))
