"""`python -m tests.core.model.decoder.compare_decoder`: how far the decoder's logits are from those of transformers."""

import tempfile
from pathlib import Path

from gguf import GGMLQuantizationType as Q
from torch import Tensor

from core.config import ModelConfig
from core.model.registry import load_model
from tests.core.model.forward import logits_of
from tests.core.model.hf.tiny_transformers import logits_by_transformers
from tests.core.model.tiny_families import TINY_FAMILIES, WINDOW, TinyFamily, write_gguf
from tests.core.model.tiny_model import random_tokens

PROMPT = random_tokens(10 * WINDOW, 160)
CHUNKS = {"one pass": 512, "chunks of 7": 7, "token by token": 1}


def _differences(tiny: TinyFamily) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = tiny.write(folder)
        expected = logits_by_transformers(written, PROMPT)
        model = load_model(ModelConfig(path=folder))
        found = [f"{_largest(logits_of(model, PROMPT, chunk), expected):.0e}" for chunk in CHUNKS.values()]
        if tiny.gguf_arch is None:
            return [*found, ""]
        write_gguf(written, tiny.gguf_arch, folder / "tiny.gguf", Q.F32)
        from_gguf = logits_of(load_model(ModelConfig(path=folder / "tiny.gguf")), PROMPT)
        return [*found, f"{_largest(from_gguf, logits_of(model, PROMPT)):.0e}"]


def _largest(logits: Tensor, expected: Tensor) -> float:
    return float((logits - expected).abs().max())


if __name__ == "__main__":
    print("|", " | ".join(["family", *CHUNKS, "GGUF beside safetensors"]), "|")
    print("|---" * (2 + len(CHUNKS)) + "|")
    for name, tiny in TINY_FAMILIES.items():
        print("|", " | ".join([name, *_differences(tiny)]), "|", flush=True)
