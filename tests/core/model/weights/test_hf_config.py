"""What a Hugging Face config.json says about its model."""

from dataclasses import replace
from typing import Any

import pytest

from core.model.architecture import Architecture, Llama3Scaling, Rope, YarnScaling
from core.model.weights.hf_config import find_text_config, read_architecture
from core.model.weights.settings import Settings
from core.model.weights.weight_source import ModelLoadError
from tests.core.model.tiny_model import TINY, TINY_QWEN2, TinyModel

FAMILIES = "llama, mistral, qwen2, qwen3, gemma2, gemma3_text, phi3"
COUNT = "must be an integer in .1, 2147483647."
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


def read(config: dict[str, Any]) -> Architecture:
    return read_architecture(find_text_config(Settings("config.json: ", config)))


def read_tiny(architecture: Architecture = TINY, **config: Any) -> Architecture:
    """Of a tiny model's configuration with ``config`` on top."""
    return read(TinyModel(architecture).config() | config)


@pytest.mark.parametrize("architecture", [TINY, TINY_QWEN2, replace(TINY, head_size=32, attention_scale=32**-0.5)])
def test_the_architecture_is_read(architecture: Architecture) -> None:
    """All of it."""
    assert read_tiny(architecture, head_dim=architecture.head_size) == architecture


@pytest.mark.parametrize(
    ("config", "rope"),
    [
        ({}, Rope(1000.0)),
        ({"rope_theta": None}, Rope(10_000.0)),
        ({"rope_scaling": None}, Rope(1000.0)),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, Rope(1000.0, linear_factor=2.0)),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3}}, Rope(1000.0, llama3=Llama3Scaling(8.0, 1.0, 4.0, 32))),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, Rope(1000.0, yarn=YarnScaling(4.0, 512))),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_slow": 2}},
            Rope(1000.0, yarn=YarnScaling(4.0, 64, beta_slow=2.0)),
        ),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}}, Rope(5.0)),
    ],
)
def test_rotary_settings_are_read_in_every_spelling(config: dict[str, Any], rope: Rope) -> None:
    """Old, newer, and that of transformers 5."""
    assert read_tiny(**config).ropes == (rope,) * 3


QWEN_WINDOWS = {"use_sliding_window": True, "sliding_window": 8}


@pytest.mark.parametrize(
    ("family", "config", "windows"),
    [
        ("mistral", {}, [4096, 4096, 4096]),
        ("mistral", {"sliding_window": None}, [None, None, None]),
        ("mistral", {"sliding_window": 8}, [8, 8, 8]),
        ("qwen2", {}, [None, None, None]),
        ("qwen2", {"sliding_window": 8, "max_window_layers": 0}, [None, None, None]),
        ("qwen2", QWEN_WINDOWS, [None, None, None]),
        ("qwen2", {**QWEN_WINDOWS, "max_window_layers": 1}, [None, 8, 8]),
        ("qwen3", {**QWEN_WINDOWS, "max_window_layers": 0}, [8, 8, 8]),
        ("qwen3", {**QWEN_WINDOWS, "layer_types": ["sliding_attention", *["full_attention"] * 2]}, [8, None, None]),
        ("gemma2", {}, [4096, None, 4096]),
        ("gemma2", {"sliding_window": 8, "layer_types": ["full_attention"] * 3}, [None, None, None]),
        ("gemma3_text", {"sliding_window": 8}, [8, 8, 8]),
        ("gemma3_text", {"sliding_window": 8, "sliding_window_pattern": 3}, [8, 8, None]),
        ("phi3", {}, [None, None, None]),
        ("phi3", {"sliding_window": 8}, [8, 8, 8]),
    ],
)
def test_windows_are_read_in_every_spelling(family: str, config: dict[str, Any], windows: list[int | None]) -> None:
    """By a list of the layers' types, or by the family's rule; what the family takes where nothing is said."""
    assert list(read_tiny(model_type=family, **config).windows) == windows


NESTED = {"sliding_attention": {"rope_theta": 5.0}, "full_attention": {"rope_type": "linear", "factor": 8.0}}


@pytest.mark.parametrize(
    ("config", "local", "everywhere"),
    [
        ({"rope_theta": 7.0}, Rope(10_000.0), Rope(7.0)),
        ({"rope_local_base_freq": 3.0, "rope_scaling": {"type": "linear", "factor": 8.0}}, Rope(3.0), Rope(1e6, 8.0)),
        ({"rope_parameters": NESTED}, Rope(5.0), Rope(1e6, 8.0)),
        ({"rope_parameters": {**NESTED, "sliding_attention": None}}, Rope(10_000.0), Rope(1e6, 8.0)),
    ],
)
def test_layers_with_a_window_may_have_a_rope_of_their_own(
    config: dict[str, Any], local: Rope, everywhere: Rope
) -> None:
    """Gemma 3, before transformers 5 and since."""
    values = TinyModel(TINY).config() | {"model_type": "gemma3_text", "sliding_window_pattern": 3}
    del values["rope_theta"]
    assert read(values | config).ropes == (local, local, everywhere)


def test_a_gemma3_that_sees_images_is_its_language_model() -> None:
    """Of which the hub's files say little: the rest is the family's."""
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    read_text = read({"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1152}})
    assert (read_text.family, read_text.vocab_size, read_text.num_kv_heads) == ("gemma3_text", 262_208, 4)
    assert (read_text.head_size, read_text.attention_scale, read_text.windows[4:6]) == (256, 1 / 16, (1024, None))
    assert (read_text.max_model_len, read_text.norm_eps) == (131_072, 1e-6)


def test_gemma2_bounds_scores_and_logits() -> None:
    """By what the configuration says, a null being no bound, or else by the family's numbers."""
    said = read_tiny(
        model_type="gemma2", attn_logit_softcapping=None, final_logit_softcapping=5, query_pre_attn_scalar=4
    )
    silent = read_tiny(model_type="gemma2")
    assert (said.attention_softcap, said.logits_softcap, said.attention_scale) == (None, 5.0, 0.5)
    assert (silent.attention_softcap, silent.logits_softcap, silent.attention_scale) == (50.0, 30.0, 1 / 16)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "mamba"}, f"model_type must be one of {FAMILIES}, got 'mamba'"),
        ({"model_type": None}, f"model_type must be one of {FAMILIES}, got None"),
        ({"model_type": ["llama"]}, f"model_type must be one of {FAMILIES}, got .'llama'."),
        ({"model_type": "gemma3", "text_config": 7}, "text_config must be a JSON object, got 7"),
        ({"model_type": "gemma3"}, "text_config.hidden_size is missing"),
        ({"hidden_size": "64"}, f"hidden_size {COUNT}, got '64'"),
        ({"hidden_size": 64.5}, f"hidden_size {COUNT}, got 64.5"),
        ({"vocab_size": True}, f"vocab_size {COUNT}, got True"),
        ({"num_attention_heads": 0}, f"num_attention_heads {COUNT}, got 0"),
        ({"num_attention_heads": 65}, f"head_dim {COUNT}, got 0"),
        ({"num_hidden_layers": 10**400}, "num_hidden_layers must be an integer in .1, 10000., got 1000"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"rms_norm_eps": [1e-5]}, "rms_norm_eps must be a number > 0 and at most 1e.30, got .1e-05"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be a number > 0 and at most 1e.30, got nan"),
        ({"rope_theta": 10**400}, "rope_theta must be a number > 0 and at most 1e.30, got 1000"),
        ({"rope_scaling": "linear"}, "rope_scaling must be a JSON object, got 'linear'"),
        ({"rope_parameters": [1]}, "rope_parameters must be a JSON object, got .1."),
        ({"rope_parameters": {"full_attention": 7}}, "full_attention must be a JSON object, got 7"),
        ({"hidden_act": "gelu"}, "hidden_act must be one of silu, got 'gelu'"),
        ({"model_type": "gemma2", "hidden_act": "gelu"}, "hidden_act must be one of gelu_pytorch_tanh, got 'gelu'"),
        (
            {"use_sliding_window": "yes", "sliding_window": 4},
            "use_sliding_window must be one of True, False, got 'yes'",
        ),
        ({"sliding_window": 0}, f"sliding_window {COUNT}, got 0"),
        ({"layer_types": ["sliding_attention"] * 3}, "sliding_window is missing"),
        ({"layer_types": ["full_attention"] * 2}, "layer_types must be 3 times full_attention or sliding_attention"),
        ({"layer_types": ["chunked_attention"] * 3}, "layer_types must be 3 times full_attention or sliding_attention"),
        ({"layer_types": [[]] * 3}, "layer_types must be 3 times full_attention or sliding_attention"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention must be one of False, got True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config must be one of None"),
        ({"partial_rotary_factor": 0.75}, "partial_rotary_factor must be one of 1, got 0.75"),
        (
            {"rope_scaling": {"rope_type": "dynamic"}},
            "rope_type must be one of default, linear, llama3, yarn, got 'dyn",
        ),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor is missing"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2, "mscale": 1.0}}, "mscale must be one of None, got 1.0"),
        (
            {"model_type": "phi3", "rope_scaling": {"type": "longrope"}},
            "rope_type must be one of default, got 'longrope'",
        ),
    ],
)
def test_a_config_that_is_not_supported_is_told(config: dict[str, Any], message: str) -> None:
    """With the file, the key, the bound and the value."""
    with pytest.raises(ModelLoadError, match=rf"config\.json: {message}"):
        read_tiny(**config)


def test_a_config_without_a_model_type_is_told() -> None:
    """It is not taken for the first family."""
    config = TinyModel(TINY).config()
    del config["model_type"]
    with pytest.raises(ModelLoadError, match=rf"config\.json: model_type must be one of {FAMILIES}, got None"):
        read(config)
