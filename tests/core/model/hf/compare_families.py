"""`python -m tests.core.model.hf.compare_families [--device D] [FAMILY …]`: our logits beside transformers'."""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from core.config import ModelConfig
from core.model.hf.model import load_transformers_model
from core.model.weights.weight_source import ModelLoadError
from tests.core.model.forward import logits_of
from tests.core.model.hf.tiny_transformers import FAMILIES, logits_by_transformers, write_model
from tests.core.model.tiny_model import random_tokens

PROMPT = random_tokens(60, 160)


def largest_difference(family: str, device: str) -> float:
    """Of any logit of a prompt of 60 tokens: in one pass, in chunks of 7, token by token."""
    with tempfile.TemporaryDirectory() as folder:
        written = write_model(Path(folder), family)
        model = load_transformers_model(ModelConfig(path=Path(folder)), torch.device(device), torch.float32)
    expected = logits_by_transformers(written, PROMPT)
    return max(float((logits_of(model, PROMPT, chunk).cpu() - expected).abs().max()) for chunk in (512, 7, 1))


def _lines(families: list[str], device: str) -> Iterator[str]:
    for family in families:
        try:
            yield f"{family:20} {largest_difference(family, device):.0e}"
        except ModelLoadError as error:
            yield f"{family:20} {str(error).partition('config.json: ')[2]}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    for line in _lines(arguments.families or sorted(FAMILIES), arguments.device):
        print(line, flush=True)
