"""service.text.token_bytes: what each kind of tokenizer writes for a byte."""

import pytest
import tokenizers
from tokenizers import decoders, models

from service.text.token_bytes import TokenBytes, UnknownTokenError, num_leading_spaces_stripped
from service.text.tokenizer import Tokenizer

_SENTENCEPIECE = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def _backend(tokens: list[str], decoder: object) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    backend.decoder = decoder
    return backend


def test_byte_level_alphabet_covers_every_byte(tokenizer: Tokenizer) -> None:
    """GPT-2's spelling of all 256 bytes, and of an added token that is not spelled so."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = _backend([*alphabet, "two words", "é€"], decoders.ByteLevel())
    spelled = TokenBytes(backend, 258)
    assert {spelled[i] for i in range(256)} == {bytes([byte]) for byte in range(256)}
    assert (spelled[256], spelled[257]) == (b"two words", "é€".encode())
    assert tokenizer.token_bytes[3575] == b" capital"


def test_sentencepiece_spells_spaces_and_bytes() -> None:
    """The low line is a space, <0xNN> is a byte, the rest is itself."""
    spelled = TokenBytes(_backend(["▁a", "<0xF0>", "<0xGG>", "é"], decoders.Sequence(_SENTENCEPIECE)), 4)
    assert [spelled[i] for i in range(4)] == [b" a", b"\xf0", b"<0xGG>", "é".encode()]


def test_silent_tokens_and_padding_stand_for_nothing() -> None:
    """A special token that is skipped, and an id below the vocabulary's size without a token."""
    spelled = TokenBytes(_backend(["a", "b"], decoders.ByteLevel()), 4, silent=[1])
    assert [spelled[i] for i in range(4)] == [b"a", b"", b"", b""]
    for token_id in (-1, 4):
        with pytest.raises(UnknownTokenError, match="outside the vocabulary of 4"):
            spelled[token_id]


@pytest.mark.parametrize(
    ("decoder", "num_spaces"),
    [
        (decoders.ByteLevel(), 0),
        (decoders.Sequence(_SENTENCEPIECE), 0),
        (decoders.Sequence([*_SENTENCEPIECE, decoders.Strip(" ", 1, 0)]), 1),
        (decoders.Metaspace(), 1),
        (decoders.Metaspace(prepend_scheme="never"), 0),
    ],
)
def test_leading_spaces_that_decoding_takes_away(decoder: object, num_spaces: int) -> None:
    """As the tokenizer's decoder says."""
    assert num_leading_spaces_stripped(_backend(["a"], decoder)) == num_spaces


def test_word_pieces() -> None:
    """Words stand apart, and what goes on in a word does not."""
    vocabulary = {"[UNK]": 0, "bread": 1, "##s": 2, "?": 3}
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    spelled = TokenBytes(backend, len(vocabulary))
    assert b"".join(spelled[token_id] for token_id in (1, 2, 3)) == b" breads ?"
    assert num_leading_spaces_stripped(backend) == 1


@pytest.mark.parametrize(("decoder", "named"), [(decoders.CTC(), "CTC"), (None, "no decoder")])
def test_unknown_decoder_is_named(decoder: object, named: str) -> None:
    """Rather than wrong text."""
    backend = tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    if decoder is not None:
        backend.decoder = decoder
    with pytest.raises(ValueError, match=named):
        TokenBytes(backend, 1)


def test_longest_token_is_measured_in_bytes_of_text() -> None:
    """Not in those of its spelling."""
    assert TokenBytes(_backend(["ĠĠĠ", "abcd"], decoders.ByteLevel()), 2).longest() == 4
    assert TokenBytes(_backend(["▁▁▁", "é", "<0xF0>"], decoders.Sequence(_SENTENCEPIECE)), 3).longest() == 3
