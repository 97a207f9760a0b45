"""Small tokenizers of both kinds, as files."""

from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

EOS = "<|end|>"
WORDS = ("foo", "bar", "yes", "no", "true", '{"', '":', '"}', "12", " a", "é", "🙂")


def write_byte_level(folder: Path, words: tuple[str, ...] = WORDS) -> tokenizers.Tokenizer:
    """All 256 bytes, ``words`` as tokens of their own, and EOS, the last."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    spelled = [_byte_level(word) for word in words if len(word.encode()) > 1]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(alphabet + spelled))}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _save(tokenizer, folder)


def write_sentencepiece(folder: Path, words: tuple[str, ...] = WORDS) -> tokenizers.Tokenizer:
    """As Gemma's: bytes have tokens of their own, a space is spelled ▁."""
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += [word.replace(" ", "▁") for word in words] + [chr(c) for c in range(33, 127)] + ["▁"]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(pieces))}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return _save(tokenizer, folder)


def _save(tokenizer: tokenizers.Tokenizer, folder: Path) -> tokenizers.Tokenizer:
    tokenizer.add_special_tokens([AddedToken(EOS, special=True)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def _byte_level(word: str) -> str:
    ((spelled, _),) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(word)
    return spelled
