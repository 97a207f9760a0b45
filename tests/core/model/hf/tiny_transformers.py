"""Small random models of transformers' families, written as checkpoints, and what transformers computes with them."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

_SIZES: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_WINDOWED = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
_LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
}
_GPT2 = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 512}
_HEAD = {"head_dim": 16}
FAMILIES: dict[str, dict[str, Any]] = {
    "apertus": {},
    "arcee": {},
    "codegen": {**_GPT2, "rotary_dim": 8},
    "cohere": {"logit_scale": 2.0},
    "cohere2": {**_WINDOWED, "logit_scale": 2.0},
    "deepseek_v2": {**_EXPERTS, **_LATENT},
    "deepseek_v3": {**_EXPERTS, **_LATENT},
    "dots1": {**_EXPERTS, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "n_shared_experts": 1},
    "ernie4_5": _HEAD,
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32},
    "exaone4": _WINDOWED,
    "gemma": _HEAD,
    "gemma2": {**_HEAD, **_WINDOWED, "final_logit_softcapping": 3.0, "attn_logit_softcapping": 5.0},
    "gemma3_text": {**_HEAD, **_WINDOWED},
    "glm": _HEAD,
    "glm4": _HEAD,
    "glm4_moe": {**_EXPERTS, "n_routed_experts": 4, **_HEAD},
    "glm4_moe_lite": {**_EXPERTS, **_LATENT},
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gpt_neox": {},
    "gpt_oss": {**_EXPERTS, **_HEAD, **_WINDOWED},
    "gptj": {**_GPT2, "rotary_dim": 8},
    "granite": {"logits_scaling": 2.0, "residual_multiplier": 0.5, "embedding_multiplier": 3.0},
    "granitemoe": {**_EXPERTS, "logits_scaling": 2.0},
    "granitemoeshared": {**_EXPERTS, "shared_intermediate_size": 32},
    "helium": _HEAD,
    "hunyuan_v1_dense": _HEAD,
    "hunyuan_v1_moe": {**_HEAD, "num_experts": 4, "moe_topk": 2},
    "llama": {},
    "minimax_m2": {**_EXPERTS, **_HEAD, "rotary_dim": 8},
    "ministral": {**_HEAD, **_WINDOWED},
    "mistral": {"sliding_window": 8},
    "mixtral": {**_EXPERTS, "sliding_window": 8},
    "nanochat": {},
    "nemotron": _HEAD,
    "olmo": {},
    "olmo2": {},
    "olmo3": _WINDOWED,
    "olmoe": _EXPERTS,
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 48},
    "persimmon": {},
    "phi": {},
    "phi3": {"sliding_window": 8},
    "phimoe": _EXPERTS,
    "qwen2": {},
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 32},
    "qwen3": _HEAD,
    "qwen3_moe": {**_EXPERTS, **_HEAD},
    "seed_oss": _HEAD,
    "smollm3": {},
    "stablelm": {"use_qkv_bias": True},
    "starcoder2": {"sliding_window": 8},
}
"""What makes each family small, and what shows where it differs from others."""


def make_model(family: str, experts_implementation: str = "eager", **settings: Any) -> Any:
    """Random weights in float32, large enough for the layers to matter."""
    sizes = _SIZES | FAMILIES.get(family, {}) | settings
    config = CONFIG_MAPPING[family](**sizes)
    torch.manual_seed(0)
    implementations = {"attn_implementation": "eager", "experts_implementation": experts_implementation}
    model = AutoModelForCausalLM.from_config(config, **implementations, dtype=torch.float32).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.15)
    return model


def write_model(folder: Path, family: str, **settings: Any) -> Any:
    """Also returned, to be compared with."""
    model = make_model(family, **settings)
    model.save_pretrained(folder)
    return model


@torch.inference_mode()
def logits_by_transformers(model: Any, token_ids: list[int]) -> Tensor:
    """float32 [tokens, vocab_size] of one causal pass."""
    logits: Tensor = model(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0]
    return logits.float()


transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
