"""A GGUF of the Llama architecture as plain float32 weights: ``convert_dense MODEL.gguf FOLDER``."""

import shutil
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def convert(gguf: Path, folder: Path) -> None:
    """The model's tokenizer and configuration lie beside it."""
    read = LlamaForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # What was read from a GGUF counts as quantized, and is not written.
    plain = LlamaForCausalLM(LlamaConfig.from_pretrained(gguf.parent))
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(gguf.parent / name, folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
