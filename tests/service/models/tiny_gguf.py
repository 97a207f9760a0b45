"""Small GGUF files, written by the reference implementation of the format."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import pre_tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
BYTE_LEVEL_TOKENS = ["<bos>", "<eos>", "<tool>", *ALPHABET, "he", "Ġhe", "[PAD0]"]
SENTENCEPIECE_TOKENS = [
    *("<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "ab", "▁ab", "  ", "<b>"),
    *(f"<0x{byte:02X}>" for byte in range(256)),
]


def write_gguf(
    path: Path, tensors: Iterable[str] = ("token_embd.weight",), architecture: str = "llama", **metadata: Any
) -> Path:
    """A file with ``metadata`` (dots in keys written as two underscores) and tensors of two zeros."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    for key, value in metadata.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add.get(type(value), writer.add_array)(key.replace("__", "."), value)
    for name in tensors:
        writer.add_tensor(name, np.zeros(2, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def byte_level_metadata(**changes: Any) -> dict[str, Any]:
    """A vocabulary of 256 bytes, two merges, two control tokens, a user-defined and an unused one."""
    return {
        "tokenizer__ggml__model": "gpt2",
        "tokenizer__ggml__pre": "gpt-2",
        "tokenizer__ggml__tokens": BYTE_LEVEL_TOKENS,
        "tokenizer__ggml__token_type": [CONTROL, CONTROL, USER_DEFINED, *[NORMAL] * 258, UNUSED],
        "tokenizer__ggml__merges": ["h e", "Ġ he"],
        "tokenizer__ggml__bos_token_id": 0,
        "tokenizer__ggml__eos_token_id": 1,
        **changes,
    }


def sentencepiece_metadata(**changes: Any) -> dict[str, Any]:
    """A vocabulary of a few pieces with scores, and a token for each byte."""
    types = [UNKNOWN, CONTROL, CONTROL, *[NORMAL] * 6, USER_DEFINED, USER_DEFINED, *[BYTE] * 256]
    return {
        "tokenizer__ggml__model": "llama",
        "tokenizer__ggml__tokens": SENTENCEPIECE_TOKENS,
        "tokenizer__ggml__token_type": types,
        "tokenizer__ggml__scores": [0.0] * 3 + [-5.0, -6.0, -7.0, -2.0, -1.0, -3.0] + [0.0] * 258,
        "tokenizer__ggml__bos_token_id": 1,
        "tokenizer__ggml__eos_token_id": 2,
        "tokenizer__ggml__unknown_token_id": 0,
        **changes,
    }
