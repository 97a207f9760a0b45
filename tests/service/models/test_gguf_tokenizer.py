"""service.models.gguf_tokenizer: the tokenizer that a GGUF describes, and a clear word where it is not known."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from service.models import ModelError
from service.models.gguf_tokenizer import adds_bos, build_tokenizer, token_named
from tests.service.models.tiny_gguf import (
    BYTE_LEVEL_TOKENS,
    SENTENCEPIECE_TOKENS,
    byte_level_metadata,
    sentencepiece_metadata,
)


def _metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("__", "."): value for key, value in metadata.items()}


def _byte_level(**changes: Any) -> tokenizers.Tokenizer:
    return build_tokenizer(_metadata(byte_level_metadata(**changes)))


def _sentencepiece(**changes: Any) -> tokenizers.Tokenizer:
    return build_tokenizer(_metadata(sentencepiece_metadata(**changes)))


def test_byte_level_bpe_merges_and_has_every_byte() -> None:
    """Merges apply, the rest is bytes, and any text comes back."""
    tokenizer = _byte_level()
    assert tokenizer.encode("he he").tokens == ["he", "Ġhe"]
    for text in ("he the é🎉\n\t", "<bos>he<eos>"):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_control_tokens_are_special_and_user_defined_ones_are_not() -> None:
    """Both are found in text; unused ids are no tokens."""
    tokenizer = _byte_level()
    added = {token.content: token.special for token in tokenizer.get_added_tokens_decoder().values()}
    assert added == {"<bos>": True, "<eos>": True, "<tool>": False}
    assert tokenizer.encode("<tool>he").ids == [2, BYTE_LEVEL_TOKENS.index("he")]
    assert tokenizer.id_to_token(BYTE_LEVEL_TOKENS.index("[PAD0]")) is None


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["a", "Ġb", "12345", "!?", "Ċ"]),
        ("smollm", ["a", "Ġb", "1", "2", "3", "4", "5", "!?", "Ċ"]),
        ("llama-bpe", ["a", "Ġb", "123", "45", "!?Ċ"]),
        ("qwen2", ["a", "Ġb", "1", "2", "3", "4", "5", "!?Ċ"]),
    ],
)
def test_text_is_split_as_the_pre_tokenizer_named(pre: str, expected: list[str]) -> None:
    """Digits one by one, by three or all together."""
    pre_tokenizer = _byte_level(tokenizer__ggml__pre=pre).pre_tokenizer
    assert [piece for piece, _ in pre_tokenizer.pre_tokenize_str("a b12345!?\n")] == expected


def test_llama3_takes_known_words_whole_and_qwen2_composes_accents() -> None:
    """ignore_merges for llama-bpe; NFC for qwen2."""
    model = json.loads(_byte_level(tokenizer__ggml__pre="llama-bpe").to_str())["model"]
    assert model["ignore_merges"] is True
    qwen2 = _byte_level(tokenizer__ggml__pre="qwen2")
    assert qwen2.encode("e\u0301").ids == qwen2.encode("é").ids


def test_sentencepiece_merges_by_score() -> None:
    """Best score first: "ab" goes before "▁a"."""
    tokenizer = _sentencepiece(tokenizer__ggml__add_bos_token=False)
    assert tokenizer.encode("ab").tokens == ["▁ab"]
    worse = [0.0] * 3 + [-5.0, -6.0, -7.0, -1.0, -2.0, -30.0] + [0.0] * 258
    assert _sentencepiece(tokenizer__ggml__scores=worse).encode("bab").tokens == ["<s>", "▁", "b", "ab"]


def test_sentencepiece_falls_back_to_bytes_and_comes_back() -> None:
    """What is in no piece is its bytes; the space in front is taken away again."""
    tokenizer = _sentencepiece()
    assert tokenizer.encode("é").tokens == ["<s>", "▁", "<0xC3>", "<0xA9>"]
    for text in ("ab é 🎉", " ab", "a  b"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_runs_of_spaces_are_one_token_where_no_space_is_prepended() -> None:
    """Gemma's way: user-defined tokens are written with plain spaces and match before anything merges."""
    tokenizer = _sentencepiece(tokenizer__ggml__add_space_prefix=False)
    assert tokenizer.encode("a  b<b>a").ids == [
        1,
        *(SENTENCEPIECE_TOKENS.index(t) for t in ("a", "  ", "b", "<b>", "a")),
    ]
    assert tokenizer.decode(tokenizer.encode(" a  b").ids) == " a  b"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (byte_level_metadata(), False),
        (byte_level_metadata(tokenizer__ggml__pre="llama-bpe"), True),
        (byte_level_metadata(tokenizer__ggml__add_bos_token=True), True),
        (sentencepiece_metadata(), True),
        (sentencepiece_metadata(tokenizer__ggml__add_bos_token=False), False),
    ],
)
def test_bos_goes_before_text_where_the_file_or_its_kind_says_so(metadata: dict[str, Any], expected: bool) -> None:
    """The flag if there is one, else llama.cpp's rule."""
    metadata = _metadata(metadata)
    bos = token_named(metadata, "bos")
    assert adds_bos(metadata) is expected
    assert (build_tokenizer(metadata).encode("a").tokens[0] == bos) is expected


def test_eos_goes_after_text_where_the_file_says_so() -> None:
    """add_eos_token."""
    assert _sentencepiece(tokenizer__ggml__add_eos_token=True).encode("a").tokens == ["<s>", "▁a", "</s>"]
    assert _byte_level(tokenizer__ggml__add_eos_token=True).encode("a").tokens == ["a", "<eos>"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tokenizer__ggml__model": "rwkv"}, "tokenizer.ggml.model 'rwkv' is not supported"),
        ({"tokenizer__ggml__pre": "tekken"}, "tokenizer.ggml.pre 'tekken' is not supported"),
    ],
)
def test_unknown_kind_is_named(changes: dict[str, str], named: str) -> None:
    """Rather than wrong tokens."""
    with pytest.raises(ModelError, match=named):
        _byte_level(**changes)


def test_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    """tokenizer.json holds all of it."""
    for tokenizer in (_byte_level(), _sentencepiece()):
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        loaded = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        assert loaded.encode("ab he 🎉").ids == tokenizer.encode("ab he 🎉").ids
