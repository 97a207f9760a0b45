"""What llguidance knows of a model's tokens."""

from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from llguidance import LLMatcher

from core.structured_output.vocabulary import VocabularyError, load_vocabulary
from tests.core.structured_output.vocabulary_files import EOS, write_byte_level, write_sentencepiece


@pytest.mark.parametrize(
    ("write", "tokens"),
    [
        (write_byte_level, {"foo": "foo", "Ġa": " a", "ðŁĻĤ": "🙂", '{"': '{"', "Ã©": "é"}),
        (write_sentencepiece, {"foo": "foo", "▁a": " a", "🙂": "🙂", "é": "é", '{"': '{"', "▁": " "}),
    ],
)
def test_tokens_are_the_bytes_they_stand_for(
    tmp_path: Path, write: Callable[[Path], tokenizers.Tokenizer], tokens: dict[str, str]
) -> None:
    """In both spellings that there are of spaces and of bytes that are no characters."""
    tokenizer = write(tmp_path)
    vocabulary = load_vocabulary(tmp_path, 600)
    assert vocabulary.vocab_size == 600
    for token, text in tokens.items():
        assert vocabulary.decode_bytes([tokenizer.token_to_id(token)]) == text.encode()
    byte_id = tokenizer.token_to_id("Ã" if write is write_byte_level else "<0xC3>")
    assert vocabulary.decode_bytes([byte_id]) == b"\xc3"


def test_special_tokens_match_no_text(tmp_path: Path) -> None:
    """Not even where any text is allowed, nor do ids without a token."""
    tokenizer = write_byte_level(tmp_path)
    end = tokenizer.token_to_id(EOS)
    matcher = LLMatcher(load_vocabulary(tmp_path, 600), 'start: /(?s:.)+/ "x"')
    mask = int.from_bytes(matcher.compute_bitmask(), "little")
    assert not mask >> end
    assert mask >> tokenizer.token_to_id("foo") & 1


def test_vocabulary_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """No file, no tokenizer in it, or one with more tokens than the model has."""
    with pytest.raises(VocabularyError, match=f"needs the model's tokenizer.json, and there is none in {tmp_path}"):
        load_vocabulary(tmp_path, 600)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(VocabularyError, match=r"cannot use .*tokenizer\.json"):
        load_vocabulary(tmp_path, 600)
    write_byte_level(tmp_path)
    with pytest.raises(VocabularyError, match="vocab size too small"):
        load_vocabulary(tmp_path, 100)


def test_an_end_of_any_name_is_found(tmp_path: Path) -> None:
    """Every other token, the first one too, stays text."""
    tokenizer = write_byte_level(tmp_path)
    vocabulary = load_vocabulary(tmp_path, 600)
    assert vocabulary.eos_tokens == [tokenizer.token_to_id(EOS)]
    mask = LLMatcher(vocabulary, "start: /(?s:.)+/").compute_bitmask()
    assert mask[0] == 0xFF
