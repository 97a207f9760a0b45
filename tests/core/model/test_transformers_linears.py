"""Linear layers and experts in the place of transformers' own."""

from typing import Any

import pytest
import torch
from transformers.pytorch_utils import Conv1D

from core.model.transformers_linears import EXPERTS, ReplacedExperts, ReplacedLinear, replace_linears
from tests.core.model.tiny_transformers import make_model


@pytest.fixture
def experts() -> Any:
    """Of the first layer of a mixture: four, two of which a token chooses."""
    return make_model("qwen3_moe", experts_implementation=EXPERTS).model.layers[0].mlp.experts


def draw(num_tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, chosen experts, their weights."""
    generator = torch.Generator().manual_seed(num_tokens)
    chosen = torch.rand(num_tokens, 4, generator=generator).topk(2).indices
    return torch.randn(num_tokens, 64, generator=generator), chosen, torch.rand(num_tokens, 2, generator=generator)


@torch.inference_mode()
def test_experts_compute_what_those_of_transformers_do(experts: Any) -> None:
    """Also when nobody chooses some of them."""
    hidden, chosen, weights = draw(20)
    experts.config._experts_implementation = "eager"
    expected, alone = experts(hidden, chosen, weights), experts(hidden[:1], chosen[:1], weights[:1])
    replaced = ReplacedExperts(experts)
    torch.testing.assert_close(replaced(hidden, chosen, weights), expected)
    torch.testing.assert_close(replaced(hidden[:1], chosen[:1], weights[:1]), alone)


@torch.inference_mode()
def test_a_token_gets_from_its_experts_what_it_gets_alone(experts: Any) -> None:
    """To the bit: neither the number of rows nor who else chose an expert changes the order of its sums."""
    replaced = ReplacedExperts(experts)
    hidden, chosen, weights = draw(40)
    together = replaced(hidden, chosen, weights)
    for rows in (slice(7, 8), slice(3, 12), slice(20, 40)):
        assert torch.equal(replaced(hidden[rows], chosen[rows], weights[rows]), together[rows])


@torch.inference_mode()
def test_all_linear_layers_are_replaced() -> None:
    """GPT-2's too, whose weights are transposed; their bytes are counted."""
    for family in ("phi3", "gpt2", "mixtral"):
        model = make_model(family, experts_implementation=EXPERTS)
        num_bytes = sum(parameter.nbytes for parameter in model.parameters())
        replaced = replace_linears(model)
        left = sum(parameter.nbytes for parameter in model.parameters())
        assert not [module for module in model.modules() if type(module) in (torch.nn.Linear, Conv1D)]
        assert any(isinstance(module, ReplacedLinear) for module in model.modules())
        tied = model.get_input_embeddings().weight.nbytes if model.config.tie_word_embeddings else 0
        assert left + replaced == num_bytes + tied
