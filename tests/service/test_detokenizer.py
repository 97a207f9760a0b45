"""service.detokenizer: text as it comes is the text of all tokens at once, and never half a character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.detokenizer import Detokenizer
from service.text.token_bytes import UnknownTokenError
from service.text.tokenizer import Tokenizer

_EVERY_BYTE = {byte: bytes([byte]) for byte in range(256)}

HARD_TEXTS = {
    "family of four (ZWJ)": "👨‍👩‍👧‍👦 at home",
    "flags": "🇫🇷🇩🇪🏳️‍🌈",
    "variation selector": "❤️ and ☎️",
    "skin tone": "👍🏽👍🏿",
    "cjk": "今日は天気がいいので、散歩しましょう。龍鱻",
    "combining accents": "e\u0301 a\u0308\u0323 n\u0303 ñ",
    "beyond the BMP": "𓀀𓁐 𐍈 𠜎",
    "right to left": "שלום العالم",
    "replacement character itself": "a\ufffdb",
}


def _feed_all(detokenizer: Detokenizer, token_ids: list[int]) -> list[str]:
    return [*(detokenizer.feed(token_id) for token_id in token_ids), detokenizer.flush()]


@pytest.mark.parametrize("text", HARD_TEXTS.values(), ids=HARD_TEXTS)
def test_characters_split_over_tokens_come_whole(tokenizer: Tokenizer, text: str) -> None:
    """SmolLM2 has several tokens for most of these characters: each delta is whole characters, together the text."""
    token_ids = tokenizer.encode(text)
    pieces = _feed_all(Detokenizer(tokenizer.spoken_bytes), token_ids)
    assert "".join(pieces) == text
    assert len(token_ids) > 2
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


@given(st.lists(st.integers(0, 255), max_size=60))
def test_any_bytes_give_the_text_of_all_at_once(token_ids: list[int]) -> None:
    """Byte by byte, valid or not: the deltas joined are the bytes decoded."""
    assert "".join(_feed_all(Detokenizer(_EVERY_BYTE), token_ids)) == bytes(token_ids).decode(errors="replace")


@given(st.text(max_size=30))
def test_each_character_comes_with_its_last_byte(text: str) -> None:
    """No character waits for anything beyond itself."""
    detokenizer = Detokenizer(_EVERY_BYTE)
    for char in text.encode(errors="ignore").decode():
        *head, last = char.encode()
        assert [detokenizer.feed(byte) for byte in head] == [""] * len(head)
        assert detokenizer.feed(last) == char


@given(st.lists(st.integers(0, 49_151), max_size=60), st.booleans())
def test_random_tokens_give_the_library_s_own_text(
    tokenizer: Tokenizer, token_ids: list[int], skip_special_tokens: bool
) -> None:
    """Any tokens of SmolLM2: the deltas joined are what the tokenizers library makes of all of them."""
    token_bytes = tokenizer.spoken_bytes if skip_special_tokens else tokenizer.token_bytes
    expected = tokenizer.backend.decode(token_ids, skip_special_tokens=skip_special_tokens)
    assert "".join(_feed_all(Detokenizer(token_bytes), token_ids)) == expected
    assert tokenizer.decode(token_ids, skip_special_tokens) == expected


@given(st.lists(st.integers(0, 255), max_size=500))
def test_five_hundred_byte_tokens_never_fail(tokenizer: Tokenizer, data: list[int]) -> None:
    """The byte tokens of SmolLM2 in any order, mostly no UTF-8 at all."""
    of_byte = {tokenizer.token_bytes[i][0]: i for i in range(17, 300) if len(tokenizer.token_bytes[i]) == 1}
    token_ids = [of_byte[byte] for byte in data if byte in of_byte]
    text = "".join(_feed_all(Detokenizer(tokenizer.spoken_bytes), token_ids))
    assert text == tokenizer.backend.decode(token_ids)


def test_incomplete_character_is_flushed_as_replacement() -> None:
    """What never became a character is one U+FFFD at the end."""
    assert _feed_all(Detokenizer(_EVERY_BYTE), [0x41, 0xF0, 0x9F]) == ["A", "", "", "\ufffd"]


def test_character_begun_in_the_prompt_is_completed() -> None:
    """The prompt ends inside 🎉: the first delta is 🎉, and nothing else of the prompt."""
    prompt = [*b"a long prompt ", 0xF0, 0x9F, 0x8E]
    assert _feed_all(Detokenizer(_EVERY_BYTE, prompt), [0x89, 0x21]) == ["🎉", "!", ""]


def test_character_begun_in_the_prompt_and_never_completed_leaves_no_trace() -> None:
    """The prompt's broken character is the prompt's affair."""
    prompt = [*b"prompt ", 0xE4, 0xB8]
    assert _feed_all(Detokenizer(_EVERY_BYTE, prompt), [0x41]) == ["A", ""]
    assert _feed_all(Detokenizer(_EVERY_BYTE, prompt), []) == [""]


def test_prompt_that_ends_with_a_whole_character_adds_nothing() -> None:
    """Nor does an empty prompt, or one that ends in bytes that begin no character."""
    for prompt in ([], [*"é".encode()], [0x80, 0x80, 0x80, 0x80]):
        assert _feed_all(Detokenizer(_EVERY_BYTE, prompt), [*b"ok"]) == ["o", "k", ""]


@pytest.mark.parametrize("token_id", [-5, 49_152, 2**32])
def test_token_outside_the_vocabulary_is_refused_and_changes_nothing(tokenizer: Tokenizer, token_id: int) -> None:
    """The error is typed, and the text goes on as if it had not been."""
    detokenizer = Detokenizer(tokenizer.spoken_bytes)
    first, *others = tokenizer.encode("🎉")
    assert detokenizer.feed(first) == ""
    with pytest.raises(UnknownTokenError, match=str(token_id)):
        detokenizer.feed(token_id)
    assert "".join(_feed_all(detokenizer, others)) == "🎉"
    with pytest.raises(UnknownTokenError):
        detokenizer.skip(token_id)


@given(st.lists(st.lists(st.integers(0, 255), min_size=1, max_size=9), max_size=9), st.lists(st.integers(0, 255)))
def test_peek_is_what_feeding_would_give(chunks: list[list[int]], prompt: list[int]) -> None:
    """Chunk after chunk, seen first or only fed: the same text. To see is not to take."""
    seeing, feeding = Detokenizer(_EVERY_BYTE, prompt), Detokenizer(_EVERY_BYTE, prompt)
    for chunk in chunks:
        expected = "".join(feeding.feed(byte) for byte in chunk)
        seen = seeing.peek(chunk)
        assert seeing.peek(chunk) == seen
        if seen is None:
            assert "".join(seeing.feed(byte) for byte in chunk) == expected
        else:
            seeing.pending = seen[1]
            assert seen[0] == expected
    assert seeing.flush() == feeding.flush()


def test_peek_at_an_unknown_token(tokenizer: Tokenizer) -> None:
    """Sees nothing: whoever feeds it learns which one it is."""
    assert Detokenizer(tokenizer.spoken_bytes).peek([1, 10**9]) is None
