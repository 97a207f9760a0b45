import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from sluicegate_client import Client
from tests.core.model.hf.tiny_transformers import write_model
from tests.e2e.server import serving
from tests.model_files import SMOLLM2_FOLDER

PROMPT = "Once upon a time, in a village by the sea,"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SMOLLM2_FOLDER / name, tmp_path)
    return tmp_path


def greedy(model: Any, token_ids: list[int], num_tokens: int) -> list[int]:
    """By transformers' own generate."""
    model.generation_config.eos_token_id = None
    with torch.inference_mode():
        tokens = model.generate(torch.tensor([token_ids]), do_sample=False, max_new_tokens=num_tokens)
    return tokens[0, len(token_ids) :].tolist()


def test_a_mixture_of_experts_is_served_as_transformers_generates(folder: Path) -> None:
    """From a folder of a family that the core has no code of its own for, tokens that stream as they are made."""
    model = write_model(folder, "mixtral", vocab_size=49_152, hidden_size=32)
    with serving(model=str(folder)) as server, Client(server.address) as client:
        stream = client.stream(PROMPT, temperature=0, max_tokens=16, ignore_eos=True)
        token_ids = [token for delta in stream for token in delta.token_ids]
        prompt = client.tokenize(PROMPT)
    assert token_ids == greedy(model, prompt, 16)
