"""vLLM's own Rust front end loads adapters into our core, and runs requests with them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.interop.openai_api import ApiError
from tests.interop.vllm_rs import MODEL, FrontEnd, serving_child

pytestmark = pytest.mark.interop

PROMPT = "The capital of France is"
HIDDEN_SIZE, INTERMEDIATE_SIZE, NUM_LAYERS, RANK = 576, 1536, 30, 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random adapter of the real model, large enough to be seen."""
    folder = tmp_path_factory.mktemp("adapter")
    torch.manual_seed(0)
    tensors = {}
    for layer in range(NUM_LAYERS):
        name = f"base_model.model.model.layers.{layer}.mlp.down_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn(RANK, INTERMEDIATE_SIZE) * 0.1
        tensors[f"{name}.lora_B.weight"] = torch.randn(HIDDEN_SIZE, RANK) * 0.1
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["down_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def front_end(vllm_rs_program: Path, folder: Path) -> Iterator[FrontEnd]:
    environment = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_RUNTIME_LORA_ALLOWED_PATH_PREFIXES": str(folder),
    }
    with serving_child(vllm_rs_program, "--enable-lora", environment=environment) as front_end:
        yield front_end


def _answer(front_end: FrontEnd, model: str) -> str:
    (choice,) = front_end.api.complete(PROMPT, model=model, temperature=0, max_tokens=12)["choices"]
    return str(choice["text"])


def test_adapters_come_and_go(front_end: FrontEnd, folder: Path) -> None:
    """By /v1/load_lora_adapter and its opposite; in between, the adapter's name is a model."""
    base = _answer(front_end, MODEL)
    for _ in range(2):
        front_end.api.post("/v1/load_lora_adapter", lora_name="poet", lora_path=str(folder))
        assert _answer(front_end, "poet") != base
        assert _answer(front_end, MODEL) == base
        front_end.api.post("/v1/unload_lora_adapter", lora_name="poet")
        with pytest.raises(ApiError):
            _answer(front_end, "poet")


def test_what_is_wrong_with_one_is_told(front_end: FrontEnd, folder: Path) -> None:
    """The core's sentence reaches whoever asked."""
    (folder / "empty").mkdir(exist_ok=True)
    with pytest.raises(ApiError, match=r"empty/adapter_config\.json: cannot be read"):
        front_end.api.post("/v1/load_lora_adapter", lora_name="none", lora_path=str(folder / "empty"))
