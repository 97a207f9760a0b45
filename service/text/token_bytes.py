"""The bytes that each token stands for: text is these bytes, joined and decoded as UTF-8."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import tokenizers

_SENTENCEPIECE_SPACE = "\u2581"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SENTENCEPIECE_DECODERS = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}


class UnknownTokenError(ValueError):
    """A token id outside the vocabulary."""


class TokenBytes(dict[int, bytes]):
    """Token id → bytes, filled as ids are asked for. ``silent`` ids stand for nothing.

    So does an id below ``vocab_size`` without a token, as in an embedding padded to a round size; any other id raises
    UnknownTokenError.
    """

    def __init__(self, backend: tokenizers.Tokenizer, vocab_size: int, silent: Iterable[int] = ()) -> None:
        super().__init__((token_id, b"") for token_id in silent)
        self._backend = backend
        self._vocab_size = vocab_size
        self._spell = _speller(_decoder_parts(backend))

    def __missing__(self, token_id: int) -> bytes:
        if not 0 <= token_id < self._vocab_size:
            raise UnknownTokenError(f"token id {token_id} is outside the vocabulary of {self._vocab_size}")
        token = self._backend.id_to_token(token_id)
        self[token_id] = spelled = b"" if token is None else self._spell(token)
        return spelled

    def longest(self) -> int:
        """Bytes of the longest token of the vocabulary. Looks at all of them."""
        return max(map(len, map(self._spell, self._backend.get_vocab())), default=0)


def num_leading_spaces_stripped(backend: tokenizers.Tokenizer) -> int:
    """Spaces that the tokenizer puts before a text, and takes away again when it decodes a whole one."""
    for part in _decoder_parts(backend):
        if part["type"] == "Strip":
            return int(part["start"])
        if part["type"] == "WordPiece":
            return 1
        if part["type"] == "Metaspace":
            return int(part.get("prepend_scheme", "always") != "never")
    return 0


def _decoder_parts(backend: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    if backend.decoder is None:
        raise ValueError("tokenizer.json has no decoder")
    decoder = json.loads(backend.decoder.__getstate__())
    parts: list[dict[str, Any]] = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    return parts


def _speller(parts: list[dict[str, Any]]) -> Callable[[str], bytes]:
    types = {part["type"] for part in parts}
    if "ByteLevel" in types:
        return _spell_byte_level
    if types <= _SENTENCEPIECE_DECODERS:
        return _spell_sentencepiece
    if types == {"WordPiece"}:
        return _spell_word_piece
    known = ", ".join(sorted(_SENTENCEPIECE_DECODERS | {"ByteLevel", "WordPiece"}))
    raise ValueError(f"tokenizer.json: a decoder of {', '.join(sorted(types))} is not supported (supported: {known})")


def _byte_of_char() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 characters stand for themselves, the rest follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTE_OF_CHAR = _byte_of_char()


def _spell_byte_level(token: str) -> bytes:
    try:
        return bytes([_BYTE_OF_CHAR[char] for char in token])
    except KeyError:  # an added token, written as it is
        return token.encode()


def _spell_word_piece(token: str) -> bytes:
    """Words stand apart; where punctuation had no space around it is not known any more."""
    return token[2:].encode() if token.startswith("##") else f" {token}".encode()


def _spell_sentencepiece(token: str) -> bytes:
    if byte := _BYTE_TOKEN.fullmatch(token):
        return bytes.fromhex(byte[1])
    return token.replace(_SENTENCEPIECE_SPACE, " ").encode()
