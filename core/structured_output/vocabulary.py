"""What llguidance must know of a model's tokens, and how much it may do for one grammar."""

import logging
import time
from pathlib import Path

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from core.structured_output.form import FormError

logger = logging.getLogger(__name__)

TOKENIZER_FILE = "tokenizer.json"
_WALK_TOKENS = 8
_LIMITS = LLParserLimits(
    # What one mask may cost, repeats of repeats in particular: 0.1 s, and 3 s with the library's own 1,000,000.
    initial_lexer_fuel=200_000,
    # An object of n optional properties takes 4 n.
    max_items_in_row=20_000,
    # Of 0.4 kB, as long as requests use the grammar.
    max_lexer_states=100_000,
    verbose_errors=False,
)


class VocabularyError(FormError):
    """There is no vocabulary to follow a form with; the text says why."""


def load_vocabulary(folder: Path, vocab_size: int) -> LLTokenizer:
    """From the tokenizer.json in ``folder``: 0.2 s and 60 MB for 49,152 tokens. Raises VocabularyError.

    Special tokens match no text. ``vocab_size``: of the model, which may have more rows than there are tokens.
    """
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        raise VocabularyError(f"needs the model's {TOKENIZER_FILE}, and there is none in {folder}")
    started = time.monotonic()
    try:
        vocabulary = _read(path.read_text(encoding="utf-8"), vocab_size)
    except (OSError, ValueError) as error:
        raise VocabularyError(f"cannot use {path}: {error}") from error
    logger.info("read the vocabulary for structured output in %.2f s", time.monotonic() - started)
    return vocabulary


def _read(content: str, vocab_size: int) -> LLTokenizer:
    # By its content: what is no file, the library would look for on the hub.
    vocabulary = LLTokenizer(content, n_vocab=vocab_size)
    if vocabulary.is_special_token(vocabulary.eos_token):
        return vocabulary
    # It knows the end by its usual names, and else takes token 0, which would be no text any more.
    unpadded = LLTokenizer(content)
    special = [token_id for token_id in range(unpadded.vocab_size) if unpadded.is_special_token(token_id)]
    if not special:
        raise ValueError("it has no special token, such as one for the end")
    return LLTokenizer(content, n_vocab=vocab_size, eos_token=special[-1])


def start_matcher(vocabulary: LLTokenizer, grammar: str) -> LLMatcher:
    """At the beginning of a text, its first mask computed. Raises FormError."""
    matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=_LIMITS)
    _compute_mask(matcher)
    return matcher


def walk(matcher: LLMatcher) -> None:
    """Along some text, to meet the limits that only show then. Raises FormError."""
    for _ in range(_WALK_TOKENS):
        allowed = _lowest_bit(_compute_mask(matcher))
        if matcher.is_stopped() or not matcher.consume_token(allowed):
            break
    if matcher.is_error():
        raise FormError(_readable(matcher.get_error()))


def _compute_mask(matcher: LLMatcher) -> bytes:
    mask = b"" if matcher.is_error() else matcher.compute_bitmask()
    if matcher.is_error():
        raise FormError(_readable(matcher.get_error()))
    if not any(mask):
        raise FormError("no text satisfies it")
    return mask


def _lowest_bit(mask: bytes) -> int:
    bits = int.from_bytes(mask, "little")
    return (bits & -bits).bit_length() - 1


def _readable(error: str) -> str:
    """The library's message without its dumps."""
    if error.startswith("NoExtensionBias"):
        return "no text satisfies it"
    shown, _, _ = error.replace("<non-verbose/>", "").partition("\n   1 |")
    return " ".join(shown.split())[:300]
