"""A causal language model of transformers, taken apart: inputs, layers, head."""

import copy
from typing import Any

from torch import Tensor, nn

from core.model.hf.attention import Receiver, received_by


class ModelParts:
    """Runs flat batches: one row of tokens, no padding, no cache of transformers' own.

    The head is the model itself over a stand-in for its layers, so that whatever a family does to its logits (scale,
    soft-cap, bias) is done by the family's own code.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._layers = model.get_decoder()
        self._embedding = model.get_input_embeddings()
        self._given = _Given()
        self._head = _with_replaced(model, self._layers, self._given)

    @property
    def num_embeddings(self) -> int:
        """Tokens that have an input."""
        return len(self._embedding.weight)

    def embed(self, token_ids: Tensor) -> Tensor:
        """[tokens, hidden_size] of int64 [tokens]."""
        rows: Tensor = self._embedding(token_ids)
        return rows

    def hidden(self, inputs: Tensor, positions: Tensor, receiver: Receiver) -> Tensor:
        """[tokens, size] of ``inputs`` [tokens, hidden_size] at ``positions`` int64 [tokens]."""
        with received_by(receiver):
            output = self._layers(inputs_embeds=inputs[None], position_ids=positions[None], use_cache=False)
        self._given.output_class = type(output)
        hidden: Tensor = output.last_hidden_state[0]
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, vocab_size] of [rows, size]; ``hidden`` must have run once."""
        self._given.hidden = hidden[None]
        logits: Tensor = self._head(inputs_embeds=hidden[None], use_cache=False).logits[0]
        self._given.hidden = None
        return logits

    def whole(self, token_ids: Tensor, receiver: Receiver) -> Tensor:
        """[tokens, vocab_size], by the model as it is, of tokens that begin a text: where it begins, the model says."""
        with received_by(receiver):
            output = self.model(input_ids=token_ids[None], use_cache=False)
        logits: Tensor = output.logits[0]
        return logits


class _Given(nn.Module):
    """Stands in for a model's layers: answers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: Tensor | None = None
        self.output_class: type | None = None

    def forward(self, *_: Any, **__: Any) -> Any:
        assert self.output_class is not None, "the layers ran once"
        return self.output_class(last_hidden_state=self.hidden)


def _with_replaced(module: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """``module`` with ``new`` in the place of ``old``. Shares all else, and leaves ``module`` as it is."""
    if module is old:
        return new
    children = {name: child for name, child in module.named_children() if any(part is old for part in child.modules())}
    if not children:
        return module
    twin = copy.copy(module)
    twin._modules = {**module._modules, **{name: _with_replaced(child, old, new) for name, child in children.items()}}
    return twin
