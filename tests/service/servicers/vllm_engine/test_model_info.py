"""What GetModelInfo says."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from service.generation_config import GenerationConfig
from service.models import ModelError, ModelFiles
from service.served_model import ServedModel
from service.servicers.vllm_engine.model_info import ModelCard


def test_all_that_the_files_of_a_model_declare(smollm2: ServedModel, smollm2_files: ModelFiles) -> None:
    """With the limits that it is served with."""
    info = ModelCard.read(smollm2_files).info(replace(smollm2, max_model_len=100))
    assert info == pb.GetModelInfoResponse(
        model_path=str(smollm2_files.path),
        tokenizer_path=str(smollm2_files.tokenizer_folder),
        is_generation=True,
        max_context_length=100,
        max_req_input_len=100,
        vocab_size=49152,
        served_model_name="smollm2-135m",
        model_type="llama",
        architectures=["LlamaForCausalLM"],
        eos_token_ids=[2],
        pad_token_id=2,
        bos_token_id=1,
        default_sampling_params_json='{"temperature":0.2,"top_p":0.9}',
    )


def test_what_is_recommended_is_compact_json(smollm2: ServedModel, smollm2_files: ModelFiles) -> None:
    """Of the parameters that routers apply; nothing at all if nothing is recommended."""
    card = ModelCard.read(smollm2_files)
    everything = GenerationConfig(0.5, 0.9, 40, 0.1, 1.1, max_tokens=9, eos_token_ids=(7, 8))
    info = card.info(replace(smollm2, generation_config=everything))
    assert info.default_sampling_params_json == (
        '{"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"repetition_penalty":1.1}'
    )
    assert [*info.eos_token_ids] == [7, 8]
    assert card.info(replace(smollm2, generation_config=GenerationConfig())).default_sampling_params_json == ""


def test_a_model_that_embeds_generates_nothing(smollm2: ServedModel, smollm2_files: ModelFiles) -> None:
    assert not ModelCard.read(smollm2_files).info(replace(smollm2, embeds=True)).is_generation


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ("", (), 0, 0)),
        ({"model_type": None, "architectures": None, "pad_token_id": None}, ("", (), 0, 0)),
        ({"architectures": "X", "pad_token_id": "2", "bos_token_id": -1}, ("", (), 0, 0)),
        (
            {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "bos_token_id": 2}},
            ("gemma3", (), 0, 2),
        ),
    ],
)
def test_what_is_not_declared_is_zero(tmp_path: Path, config: dict[str, object], expected: tuple[object, ...]) -> None:
    """Or declared as what it cannot be. A multimodal model is called by its own type, not its language model's."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    card = ModelCard.read(ModelFiles("m", tmp_path, tmp_path))
    assert (card.model_type, card.architectures, card.pad_token_id, card.bos_token_id) == expected


def test_a_broken_configuration_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json"):
        ModelCard.read(ModelFiles("m", tmp_path, tmp_path))
