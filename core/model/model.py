"""What the model runner asks of a model, and what a model asks of the runner."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from core.model.architecture import ModelShape
from core.model.attention.native_attention import NativeAttention
from core.native.kernels import Kernels


@dataclass(frozen=True)
class AttentionRule:
    """How one layer attends.

    A score is query times key times ``scale``, then ``softcap * tanh(score / softcap)`` if there is one. A token sees
    the last ``window`` tokens of its request, itself included; all of them if that is None. ``sinks`` [heads] are one
    more score for every token, whose part of the weights goes to nobody.
    """

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None


class Attention(Protocol):
    """One step's attention. It knows which token belongs to which request; the model does not."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: AttentionRule) -> Tensor:
        """Keep the new tokens' ``key`` and ``value``, then let each token see its request up to itself, by ``rule``.

        ``query`` [tokens, heads, head_size], ``key`` and ``value`` [tokens, kv_heads, head_size], rotated already.
        Returns [tokens, heads * head_size].
        """
        ...


StepAttention = Attention | NativeAttention
"""A ``NativeAttention`` is for models that have ``native_kernels``."""


class Model(Protocol):
    """A decoder over flat batches: tokens of all requests in one row, no padding."""

    @property
    def architecture(self) -> ModelShape: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype:
        """Of the computation."""
        ...

    @property
    def kv_dtype(self) -> torch.dtype:
        """Of the KV cache."""
        ...

    @property
    def native_kernels(self) -> Kernels | None:
        """Those that compute all its layers in one call, if there are such."""
        ...

    @property
    def num_weight_bytes(self) -> int:
        """Memory that the layers take."""
        ...

    def embed(self, token_ids: Tensor) -> Tensor:
        """The model's own inputs [tokens, hidden_size] of int64 [tokens], in memory of their own."""
        ...

    def forward(self, inputs: Tensor, positions: Tensor, attention: StepAttention) -> Tensor:
        """Hidden states [tokens, hidden_size] of ``inputs`` [tokens, hidden_size] at ``positions`` int64 [tokens]."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, vocab_size] of [rows, hidden_size]."""
        ...
