"""A model folder whose tokens are the 256 bytes and one end-of-sequence token: scripts for a core are readable."""

import json
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from service.models import ModelFiles

EOS_TOKEN_ID = 256
VOCAB_SIZE = 257


def write_byte_model(folder: Path) -> ModelFiles:
    """The files in ``folder``; the model is called ``bytes``. There is no weight file."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    vocabulary = {chr(byte if byte in printable else next(others)): byte for byte in range(256)}
    assert set(vocabulary) == set(alphabet)
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<eos>"])
    backend.save(str(folder / "tokenizer.json"))
    template = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    _write(folder / "tokenizer_config.json", {"eos_token": "<eos>", "chat_template": template})
    _write(folder / "config.json", {"vocab_size": VOCAB_SIZE, "eos_token_id": EOS_TOKEN_ID})
    return ModelFiles("bytes", folder, folder)


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
