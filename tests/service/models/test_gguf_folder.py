"""service.models.gguf_folder: what is written beside a GGUF, for us and for genuine front ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.models import ModelError
from service.models.gguf_folder import WRITTEN_FILES, write_gguf_folder
from service.served_model import ServedModel
from service.text.tokenizer import Tokenizer
from tests.service.models.tiny_gguf import byte_level_metadata, sentencepiece_metadata, write_gguf


def _write(folder: Path, tensors: tuple[str, ...] = ("x",), **metadata: Any) -> dict[str, Any]:
    gguf = write_gguf(folder / "a.gguf", tensors, **{"general__type": "model", **metadata})
    write_gguf_folder(gguf, folder)
    return {name: json.loads((folder / name).read_text()) for name in WRITTEN_FILES}


def test_smollm2_folder_is_a_model_folder(smollm2: ServedModel, smollm2_folder: Path) -> None:
    """The configuration of the model as its authors publish it."""
    config = json.loads((smollm2_folder / "config.json").read_text())
    assert config == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 49_152,
        "max_position_embeddings": 8192,
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "rms_norm_eps": pytest.approx(1e-5),
        "rope_theta": 100_000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    assert smollm2.tokenizer.chat_template is not None


@pytest.mark.parametrize(
    ("architecture", "num_layers", "expected"),
    [
        ("gemma2", 26, {"model_type": "gemma2", "query_pre_attn_scalar": 8, "attn_logit_softcapping": 50.0}),
        ("gemma2", 46, {"model_type": "gemma2", "query_pre_attn_scalar": 16, "hidden_activation": "gelu_pytorch_tanh"}),
        ("gemma3", 18, {"model_type": "gemma3_text", "query_pre_attn_scalar": 8, "sliding_window_pattern": 6}),
        ("gemma3", 62, {"model_type": "gemma3_text", "query_pre_attn_scalar": 16, "sliding_window": 32}),
        ("phi3", 32, {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "sliding_window": 32}),
    ],
)
def test_what_the_architecture_fixes_is_declared(
    tmp_path: Path, architecture: str, num_layers: int, expected: dict[str, Any]
) -> None:
    """Though the file does not say it: the 27B models alone do not scale scores by the size of a head, which is 8."""
    said = {"block_count": num_layers, "attention__head_count": 4, "attention__key_length": 8}
    said |= {"attention__sliding_window": 32, "attn_logit_softcapping": 50.0}
    metadata = {f"{architecture}__{key}": value for key, value in said.items()}
    config = _write(tmp_path, architecture=architecture, **metadata, **byte_level_metadata())["config.json"]
    assert {key: config[key] for key in expected} == expected


def test_tokenizer_and_its_configuration_belong_together(tmp_path: Path) -> None:
    """Special tokens by name, template, flags."""
    template = "{{ bos_token }}{{ messages[0].content }}"
    files = _write(tmp_path, tokenizer__chat_template=template, **sentencepiece_metadata())
    assert files["tokenizer_config.json"] == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 128,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "chat_template": template,
    }
    assert Tokenizer.load(tmp_path).render_chat([{"role": "user", "content": "a"}]) == "<s>a"


@pytest.mark.parametrize(("tensors", "tied"), [(("x",), True), (("x", "output.weight"), False)])
def test_output_without_a_tensor_of_its_own_is_tied(tmp_path: Path, tensors: tuple[str, ...], tied: bool) -> None:
    """Told by the tensors, as no key says it."""
    assert _write(tmp_path, tensors=tensors, **byte_level_metadata())["config.json"]["tie_word_embeddings"] is tied


def test_all_ends_of_sequence_and_recommended_sampling_are_declared(tmp_path: Path) -> None:
    """End of turn ends a sequence too; and what the authors recommend stands in newer files."""
    files = _write(
        tmp_path,
        tokenizer__ggml__eot_token_id=2,
        general__sampling__temp=0.5,
        general__sampling__top_k=20,
        **byte_level_metadata(),
    )
    assert files["generation_config.json"] == {
        "bos_token_id": 0,
        "eos_token_id": [1, 2],
        "temperature": 0.5,
        "top_k": 20,
    }
    assert files["config.json"]["eos_token_id"] == 1


def test_what_is_known_of_a_model_stands_where_its_file_says_nothing(tmp_path: Path) -> None:
    """The file's own recommendation goes first."""
    gguf = write_gguf(tmp_path / "a.gguf", general__sampling__temp=0.5, **byte_level_metadata())
    write_gguf_folder(gguf, tmp_path, {"temperature": 0.2, "top_p": 0.9})
    written = json.loads((tmp_path / "generation_config.json").read_text())
    assert (written["temperature"], written["top_p"]) == (0.5, 0.9)


def test_missing_metadata_is_named(tmp_path: Path) -> None:
    """A byte-level vocabulary without merges."""
    metadata = byte_level_metadata()
    del metadata["tokenizer__ggml__merges"]
    with pytest.raises(ModelError, match=r"a\.gguf lacks the metadata 'tokenizer\.ggml\.merges'"):
        _write(tmp_path, **metadata)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokenizer__ggml__merges", ["no such"]),
        ("tokenizer__ggml__token_type", [1, 1]),
        ("tokenizer__ggml__tokens", "x"),
    ],
)
def test_metadata_that_does_not_fit_together_is_told(tmp_path: Path, key: str, value: object) -> None:
    """One typed error with the path, whatever the tokenizers library thinks of it."""
    with pytest.raises(ModelError, match=r"a\.gguf has a tokenizer that cannot be built"):
        _write(tmp_path, **byte_level_metadata(**{key: value}))


def test_unknown_architecture_is_named(tmp_path: Path) -> None:
    """With those that are known."""
    gguf = write_gguf(tmp_path / "a.gguf", **byte_level_metadata())
    data = gguf.read_bytes()
    assert data.count(b"llama") == 3
    gguf.write_bytes(data.replace(b"llama", b"mamba"))
    with pytest.raises(ModelError, match=r"general\.architecture 'mamba' is not supported \(supported: llama, "):
        write_gguf_folder(gguf, tmp_path)
