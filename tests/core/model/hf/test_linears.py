"""Linear layers and experts in the place of transformers' own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.pytorch_utils import Conv1D

from core.config import ModelConfig
from core.model.hf.linears import EXPERTS, ReplacedExperts, ReplacedLinear, replace_linears
from core.model.hf.model import load_transformers_model
from core.model.lora.adapters import Adapters
from core.model.registry import load_model
from core.model.weights.weight_source import ModelLoadError
from tests.core.model.forward import logits_of
from tests.core.model.hf.tiny_transformers import logits_by_transformers, make_model, write_model
from tests.core.model.lora.tiny_adapter import TinyAdapter
from tests.core.model.tiny_model import random_tokens

PROMPT = random_tokens(20, 160)


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
        replaced = replace_linears(model, with_experts=True)
        left = sum(parameter.nbytes for parameter in model.parameters())
        assert not [module for module in model.modules() if type(module) in (torch.nn.Linear, Conv1D)]
        assert any(isinstance(module, ReplacedLinear) for module in model.modules())
        tied = model.get_input_embeddings().weight.nbytes if model.config.tie_word_embeddings else 0
        assert left + replaced == num_bytes + tied


class Weights:
    """A model's own, by name, as adapters are made for them."""

    def __init__(self, model: Any) -> None:
        linears = {name for name, module in model.named_modules() if isinstance(module, (torch.nn.Linear, Conv1D))}
        self.transposed = {name for name in linears if isinstance(model.get_submodule(name), Conv1D)}
        self.weights = {
            f"{name}.weight": self.turned(name, model.get_submodule(name).weight.detach()) for name in linears
        }

    def turned(self, name: str, weight: torch.Tensor) -> torch.Tensor:
        return weight.T if name in self.transposed else weight

    def put_into(self, model: Any) -> None:
        for name, weight in self.weights.items():
            module = name.removesuffix(".weight")
            model.get_submodule(module).weight.data.copy_(self.turned(module, weight))


@pytest.mark.parametrize(
    ("family", "targets"),
    [("gpt2", ("c_attn", "c_proj", "c_fc")), ("phi3", ("qkv_proj", "down_proj")), ("qwen2_moe", ("q_proj", "up_proj"))],
)
def test_an_adapter_adds_what_it_adds_to_the_weights(tmp_path: Path, family: str, targets: tuple[str, ...]) -> None:
    """Here the model's, there the merged one's logits; without the adapter, those of the model as it was."""
    written = write_model(tmp_path, family)
    weights, adapters = Weights(written), Adapters(max_rank=8)
    adapter = TinyAdapter(weights, targets)
    model = load_transformers_model(ModelConfig(path=tmp_path), torch.device("cpu"), torch.float32, adapters)
    adapters.load(1, adapter.write(tmp_path / "adapter"))
    adapters.begin_step([(None, len(PROMPT))])
    torch.testing.assert_close(logits_of(model, PROMPT), logits_by_transformers(written, PROMPT), atol=1e-4, rtol=0)
    adapters.begin_step([(1, len(PROMPT))])
    adapter.merged_into(weights).put_into(written)
    torch.testing.assert_close(logits_of(model, PROMPT), logits_by_transformers(written, PROMPT), atol=1e-4, rtol=0)


def test_an_adapter_of_experts_is_refused(tmp_path: Path) -> None:
    """Nor can the head be adapted, whatever its family calls it: both see other rows than those of a step."""
    for family, target in (("qwen3_moe", "experts.0.up_proj"), ("gpt_neox", "embed_out")):
        written = write_model(tmp_path / family, family)
        weights, adapters = Weights(written), Adapters(max_rank=8)
        prefix = "model.layers.0.mlp." if family == "qwen3_moe" else ""
        weights.weights = {f"{prefix}{target}.weight": torch.zeros(160, 64)}
        load_model(ModelConfig(path=tmp_path / family), adapters)
        with pytest.raises(ModelLoadError, match=f"{target} is no linear layer of the model"):
            adapters.load(1, TinyAdapter(weights, (target,)).write(tmp_path / family / "adapter"))
