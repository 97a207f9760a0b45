"""The linear layers of a model of transformers, and those of its experts, as layers of ours.

They are the fastest for device and dtype. On a CPU theirs also round otherwise with every number of rows, so that what
a token gets would depend, in its last bits, on how many others the step has.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.integrations.moe import ExpertsInterface, grouped_mm_experts_forward
from transformers.pytorch_utils import Conv1D

from core.model.linear import Linear, make_linear
from core.model.lora.adapters import Adapters

EXPERTS = "sluicegate"
"""What ``experts_implementation`` is for models whose experts are replaced."""
_REPLACED = "replaced_experts"


class ReplacedLinear(nn.Module):
    """Maps [*, in_size] to [*, out_size], as the module of transformers that it replaces."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._linear: Linear = make_linear(weight, bias)
        self.out_features, self.in_features = weight.shape
        # Some code asks its type or device. It has no elements: who computes with it fails, in the probe already.
        self.weight = torch.empty(0, dtype=weight.dtype, device=weight.device)
        self.num_bytes = weight.nbytes + (bias.nbytes if bias is not None else 0)

    def let_adapt(self, name: str, adapters: Adapters) -> None:
        """``adapters`` may add to what this gives, under this name."""
        like, parts = self.weight, {name: self.out_features}
        self._linear = adapters.adapt(self._linear, parts, self.in_features, like.device, like.dtype)

    def forward(self, inputs: Tensor) -> Tensor:
        return self._linear(inputs.reshape(-1, self.in_features)).view(*inputs.shape[:-1], self.out_features)


class ReplacedExperts:
    """All the experts of one layer. A token's are added in the order of its choice, whoever else chose them."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._up = _take_linears(module, "gate_up_proj" if module.has_gate else "up_proj")
        self._down = _take_linears(module, "down_proj")
        self.num_bytes = sum(layer.num_bytes for layer in (*self._up, *self._down))

    def __call__(self, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """[tokens, size] of ``hidden``, the experts ``chosen`` [tokens, choices] and their ``weights``."""
        num_choices = chosen.shape[1]
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=len(self._up)).tolist()
        parts = torch.split(hidden[order // num_choices], counts)
        computed = torch.cat([self._compute(expert, part) for expert, part in enumerate(parts) if len(part)])
        by_choice = torch.empty_like(computed).index_copy_(0, order, computed).view(len(hidden), num_choices, -1)
        summed: Tensor = (by_choice * weights[..., None]).sum(1)
        return summed.to(hidden.dtype)

    def _compute(self, expert: int, rows: Tensor) -> Tensor:
        raised = self._up[expert](rows)
        activated = self._module._apply_gate(raised) if self._module.has_gate else self._module.act_fn(raised)
        lowered: Tensor = self._down[expert](activated)
        if self._module.has_post_expert_norm:
            lowered = self._module.post_expert_norm(lowered)
        return lowered


def replace_linears(model: nn.Module, with_experts: bool) -> int:
    """The bytes of what was replaced. ``with_experts``: ``model`` was made with ``experts_implementation`` EXPERTS."""
    replaced: list[ReplacedLinear | ReplacedExperts] = []
    for module in list(model.modules()):
        if with_experts and hasattr(module, "is_transposed") and hasattr(module, "has_gate"):
            experts = ReplacedExperts(module)
            setattr(module, _REPLACED, experts)
            replaced.append(experts)
        for name, child in module.named_children():
            if (make := _MAKERS.get(type(child))) is not None:
                setattr(module, name, linear := make(child))
                replaced.append(linear)
    return sum(layer.num_bytes for layer in replaced)


def adapt_linears(model: Any, adapters: Adapters, run: Callable[[], int]) -> None:
    """Let ``adapters`` add to those replaced layers that see the rows of a step as they are: not to head and experts.

    ``run`` puts some rows through the layers, and returns how many.
    """
    counts: dict[nn.Module, list[int]] = {}

    def count(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        counts.setdefault(module, []).append(inputs[0].numel() // inputs[0].shape[-1])

    linears = {name: module for name, module in model.named_modules() if isinstance(module, ReplacedLinear)}
    hooks = [module.register_forward_pre_hook(count) for module in linears.values()]
    num_rows = run()
    for hook in hooks:
        hook.remove()
    for name, module in linears.items():
        if counts.get(module) == [num_rows] and module is not model.get_output_embeddings() and ".experts." not in name:
            module.let_adapt(name, adapters)


def _of_linear(module: Any) -> ReplacedLinear:
    return ReplacedLinear(module.weight.detach(), module.bias.detach() if module.bias is not None else None)


def _of_conv1d(module: Any) -> ReplacedLinear:
    """GPT-2's linear layer, whose weight is [in_size, out_size]."""
    return ReplacedLinear(module.weight.detach().T.contiguous(), module.bias.detach())


_MAKERS: dict[type[nn.Module], Callable[[Any], ReplacedLinear]] = {nn.Linear: _of_linear, Conv1D: _of_conv1d}


def _take_linears(module: Any, name: str) -> list[ReplacedLinear]:
    """Of the tensor [experts, out_size, in_size] called ``name``, or transposed; the module has it no more."""
    weights, biases = getattr(module, name).detach(), None
    if module.has_bias:
        biases = getattr(module, f"{name}_bias").detach()
        delattr(module, f"{name}_bias")
    delattr(module, name)
    if module.is_transposed:
        weights = weights.transpose(1, 2)
    return [
        ReplacedLinear(weight.contiguous(), biases[expert] if biases is not None else None)
        for expert, weight in enumerate(weights)
    ]


def _compute_experts(module: Any, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Until a module's experts are replaced, as transformers does it."""
    experts: Callable[[Tensor, Tensor, Tensor], Tensor] | None = getattr(module, _REPLACED, None)
    computed: Tensor = (experts or partial(grouped_mm_experts_forward, module))(hidden, chosen, weights)
    return computed


ExpertsInterface.register(EXPERTS, _compute_experts)
