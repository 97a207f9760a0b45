"""tokenizer.json out of a GGUF's vocabulary, so that the rest of the gateway knows one kind of tokenizer only.

Byte-level BPE (``tokenizer.ggml.model`` = gpt2) comes with its merges; how text is split before merging is only named
there (``tokenizer.ggml.pre``). SentencePiece BPE (llama) comes with scores instead of merges: every token of two known
halves is a merge, and a higher score merges first.
"""

from collections.abc import Iterator
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from service.models.errors import ModelError

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
"""``tokenizer.ggml.token_type``."""
_SPACE = "\u2581"
"""What SentencePiece writes for a space."""

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


def build_tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    """The tokenizer that ``metadata`` (of a GGUF file) describes.

    Raises ModelError, with its name, for a kind of tokenizer or of pre-tokenizer that is not known here.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        tokenizer = _byte_level_bpe(metadata)
    elif kind == "llama":
        tokenizer = _sentencepiece_bpe(metadata)
    else:
        raise ModelError(f"tokenizer.ggml.model {kind!r} is not supported (supported: gpt2, llama)")
    _add_tokens(tokenizer, metadata)
    _frame_text(tokenizer, metadata)
    return tokenizer


def adds_bos(metadata: dict[str, Any]) -> bool:
    """Does text begin with the BOS token? If the file does not say: as llama.cpp decides it."""
    by_kind = metadata["tokenizer.ggml.model"] == "llama" or metadata.get("tokenizer.ggml.pre") == "llama-bpe"
    return bool(metadata.get("tokenizer.ggml.add_bos_token", by_kind))


def token_named(metadata: dict[str, Any], role: str) -> str | None:
    """The token that plays ``role`` (bos, eos, unknown, padding ...), if there is one."""
    token_id = metadata.get(f"tokenizer.ggml.{role}_token_id")
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    return tokens[token_id] if token_id is not None and token_id < len(tokens) else None


def _byte_level_bpe(metadata: dict[str, Any]) -> Tokenizer:
    pre = metadata.get("tokenizer.ggml.pre", "gpt-2")
    merges = [(left, right) for left, _, right in (m.partition(" ") for m in metadata["tokenizer.ggml.merges"])]
    tokenizer = Tokenizer(models.BPE(vocab=_vocabulary(metadata), merges=merges, ignore_merges=pre == "llama-bpe"))
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _byte_level_pre_tokenizer(pre)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _byte_level_pre_tokenizer(pre: str) -> PreTokenizer:
    gpt2_split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    no_split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    known: dict[str, list[PreTokenizer]] = {
        "gpt-2": [gpt2_split],
        "smollm": [pre_tokenizers.Digits(individual_digits=True), gpt2_split],
        "llama-bpe": [pre_tokenizers.Split(Regex(_LLAMA3_SPLIT), "isolated"), no_split],
        "qwen2": [pre_tokenizers.Split(Regex(_QWEN2_SPLIT), "isolated"), no_split],
    }
    if pre not in known:
        raise ModelError(f"tokenizer.ggml.pre {pre!r} is not supported (supported: {', '.join(known)})")
    return pre_tokenizers.Sequence(known[pre])


def _sentencepiece_bpe(metadata: dict[str, Any]) -> Tokenizer:
    vocabulary = _vocabulary(metadata)
    merges = _merges_of_scores(vocabulary, metadata["tokenizer.ggml.scores"])
    unknown = token_named(metadata, "unknown")
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    spaces: list[Normalizer] = [normalizers.Replace(" ", _SPACE)]
    text = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if _prepends_space(metadata):
        spaces.insert(0, normalizers.Prepend(_SPACE))
        text.append(decoders.Strip(content=" ", left=1))
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence(text)
    return tokenizer


def _prepends_space(metadata: dict[str, Any]) -> bool:
    return bool(metadata.get("tokenizer.ggml.add_space_prefix", True))


def _merges_of_scores(vocabulary: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every way to make a token of two others, best score first, ties by token id."""
    ranked = sorted(vocabulary.items(), key=lambda item: (-scores[item[1]], item[1]))
    return [halves for token, _ in ranked for halves in _known_halves(token, vocabulary)]


def _known_halves(token: str, vocabulary: dict[str, int]) -> Iterator[tuple[str, str]]:
    for cut in range(1, len(token)):
        if token[:cut] in vocabulary and token[cut:] in vocabulary:
            yield token[:cut], token[cut:]


def _vocabulary(metadata: dict[str, Any]) -> dict[str, int]:
    # Unused ids only pad the embedding to a round size.
    types = metadata["tokenizer.ggml.token_type"]
    return {token: i for i, (token, kind) in enumerate(zip(_spelled(metadata), types, strict=True)) if kind != _UNUSED}


def _spelled(metadata: dict[str, Any]) -> list[str]:
    """The tokens as text is spelled when it is matched: SentencePiece's user-defined ones stand with plain spaces."""
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    if metadata["tokenizer.ggml.model"] != "llama":
        return tokens
    types = metadata["tokenizer.ggml.token_type"]
    return [t.replace(" ", _SPACE) if kind == _USER_DEFINED else t for t, kind in zip(tokens, types, strict=True)]


def _add_tokens(tokenizer: Tokenizer, metadata: dict[str, Any]) -> None:
    """Tokens that text is searched for before anything else; all but the user-defined ones are special."""
    # SentencePiece finds runs of spaces among them after normalization; a prepended space would spoil that.
    normalized = metadata["tokenizer.ggml.model"] == "llama" and not _prepends_space(metadata)
    added = []
    for token, kind in zip(_spelled(metadata), metadata["tokenizer.ggml.token_type"], strict=True):
        if kind == _USER_DEFINED:
            added.append(AddedToken(token, special=False, normalized=normalized))
        elif kind in (_UNKNOWN, _CONTROL):
            added.append(AddedToken(token, special=True, normalized=False))
    tokenizer.add_tokens(added)


def _frame_text(tokenizer: Tokenizer, metadata: dict[str, Any]) -> None:
    first = token_named(metadata, "bos") if adds_bos(metadata) else None
    last = token_named(metadata, "eos") if metadata.get("tokenizer.ggml.add_eos_token") else None
    frame = [token for token in (first, last) if token is not None]
    if frame:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=" ".join(filter(None, (first, "$A", last))),
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in frame],
        )
