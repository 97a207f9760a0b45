"""Our attention as one of transformers' own: its layers call it by the name they find in their configuration.

    layers of transformers ──▶ the functions registered here ──▶ whoever receives: one step of the runner, or a probe

Masks are never built. transformers asks for one with a function that says who sees whom; what the receiver answers
travels through the model's layers and comes back with each call.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from core.model.model import Attention, AttentionRule

NAME = "sluicegate"
"""What ``attn_implementation`` is for our models."""

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Whether a query sees a key: of batch index, head, the query's position and the key's, all of them int64."""


@dataclass(frozen=True)
class CausalMask:
    """Stands where transformers has a mask: a token sees the last ``window`` up to itself, or all of them."""

    window: int | None = None


@dataclass(frozen=True)
class AttentionCall:
    """What a layer hands over: tensors [1, heads, tokens, size], and by name whatever else its family has."""

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Any
    arguments: Mapping[str, Any]


class Receiver(Protocol):
    """Takes the calls of a model's layers while it is the current one."""

    def attend(self, call: AttentionCall) -> Tensor:
        """[1, tokens, heads, value_size]."""
        ...

    def mask(self, sees: MaskFunction, padding: Tensor | None) -> CausalMask: ...


@dataclass(frozen=True)
class Layer:
    """How a module of transformers attends. Keys and values are kept at ``head_size``, the larger of the two's."""

    index: int
    rule: AttentionRule
    num_kv_heads: int
    head_size: int
    value_size: int


class StepReceiver:
    """Passes the layers' calls to one step's attention."""

    def __init__(self, attention: Attention, layers: Mapping[nn.Module, Layer]) -> None:
        self._attention, self._layers = attention, layers

    def attend(self, call: AttentionCall) -> Tensor:
        layer = self._layers[call.module]
        query, key, value = (_flatten(part, layer.head_size) for part in (call.query, call.key, call.value))
        attended = self._attention.attend(layer.index, query, key, value, layer.rule)
        return attended.view(1, len(attended), -1, layer.head_size)[..., : layer.value_size]

    def mask(self, sees: MaskFunction, padding: Tensor | None) -> CausalMask:  # noqa: ARG002 - the rules say it
        return _ANY_MASK


_ANY_MASK = CausalMask()
_receiver: ContextVar[Receiver] = ContextVar("receiver")


@contextmanager
def received_by(receiver: Receiver) -> Iterator[None]:
    """Calls of layers go to ``receiver`` in this block, in this thread."""
    token = _receiver.set(receiver)
    try:
        yield
    finally:
        _receiver.reset(token)


def _flatten(heads: Tensor, size: int) -> Tensor:
    """[tokens, heads, size] of [1, heads, tokens, …]; zeros at the end add nothing to a score."""
    flat = heads[0].transpose(0, 1)
    return flat if flat.shape[-1] == size else functional.pad(flat, (0, size - flat.shape[-1]))


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None, **arguments: Any
) -> tuple[Tensor, None]:
    return _receiver.get().attend(AttentionCall(module, query, key, value, attention_mask, arguments)), None


def _mask(mask_function: MaskFunction, attention_mask: Tensor | None = None, **_: Any) -> CausalMask:
    return _receiver.get().mask(mask_function, attention_mask)


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, _mask)
