"""Text to tokens and back, and conversations to tokens."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from service.models.errors import ModelError
from service.models.model_folder import read_json, read_vocab_size
from service.text.chat_template import ChatTemplate, ChatTemplateError
from service.text.token_bytes import TokenBytes, num_leading_spaces_stripped

_PIECE_TOKENS = 2**13
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class Tokenizer:
    """What a model folder says of text. Safe to use from any thread.

    ``token_bytes`` and ``spoken_bytes`` give the bytes of each token; in the latter, special tokens are silent.
    """

    def __init__(self, backend: tokenizers.Tokenizer, config: Mapping[str, Any], vocab_size: int) -> None:
        self.backend = backend
        # Some files ask for texts to be cut and padded to the length that their authors trained with.
        backend.no_truncation()
        backend.no_padding()
        special_tokens = {role: _content(config[role]) for role in _SPECIAL_TOKENS if config.get(role)}
        self.vocab_size = max(vocab_size, backend.get_vocab_size())
        self.bos_token_id: int | None = backend.token_to_id(special_tokens.get("bos_token", ""))
        self.eos_token_id: int | None = backend.token_to_id(special_tokens.get("eos_token", ""))
        special_ids = [token_id for token_id, token in backend.get_added_tokens_decoder().items() if token.special]
        self.token_bytes = TokenBytes(backend, self.vocab_size)
        self.spoken_bytes = TokenBytes(backend, self.vocab_size, silent=special_ids)
        self.longest_token_bytes = self.token_bytes.longest()
        self._num_stripped = num_leading_spaces_stripped(backend)
        self._added_bos: list[int] = [i for i in backend.encode("").ids[:1] if i == self.bos_token_id]
        source = _template_source(config.get("chat_template"))
        self.chat_template = None if source is None else ChatTemplate(source, special_tokens)

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer of a model folder. Raises ModelError if it has none, or one of a kind not known here."""
        config = read_json(folder / "tokenizer_config.json")
        vocab_size = read_vocab_size(folder) or 0
        template = folder / "chat_template.jinja"
        try:
            if template.is_file():
                config["chat_template"] = template.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ModelError(f"{template}: {error}") from error
        try:
            return cls(tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), config, vocab_size)
        except ChatTemplateError as error:
            raise ModelError(f"{folder}: {error}") from error
        except Exception as error:  # the library raises nothing narrower
            raise ModelError(f"{folder / 'tokenizer.json'} or tokenizer_config.json: {error!r}") from error

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The tokens of ``text``. ``add_special_tokens``: with the BOS and EOS tokens that the model wants around it.

        A BOS that the text brings itself is not doubled.
        """
        # The plain ``encode`` would let no other thread run meanwhile: a second for two megabytes.
        (encoding,) = self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        is_doubled = add_special_tokens and self._added_bos and ids[:2] == self._added_bos * 2
        return ids[1:] if is_doubled else ids

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of ``token_ids``, U+FFFD for what is not UTF-8. Raises UnknownTokenError."""
        spelled = self.spoken_bytes if skip_special_tokens else self.token_bytes
        ids = [*token_ids]
        # A piece at a time: to join a million would let no other thread run meanwhile.
        pieces = (ids[start : start + _PIECE_TOKENS] for start in range(0, len(ids), _PIECE_TOKENS))
        spellings = [b"".join([spelled[token_id] for token_id in piece]) for piece in pieces]
        text = b"".join(spellings).decode(errors="replace")
        stripped = len(text) - len(text.lstrip(" "))
        return text[min(stripped, self._num_stripped) :]

    def token_text(self, token_id: int) -> str:
        """The token as the vocabulary spells it; empty if the id has none."""
        return self.backend.id_to_token(token_id) or ""

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """A conversation in the model's template. Raises ChatTemplateError if there is no template, or it fails."""
        if self.chat_template is None:
            raise ChatTemplateError("the model has no chat template: send text")
        return self.chat_template.render(messages, add_generation_prompt, template_kwargs or {})

    def encode_chat(self, rendered: str) -> list[int]:
        """The tokens of a conversation as ``render_chat`` gave it, with exactly one BOS if the model wants one."""
        ids = self.encode(rendered, add_special_tokens=False)
        return ids if ids[:1] == self._added_bos else self._added_bos + ids


def _content(token: str | Mapping[str, Any]) -> str:
    """Special tokens stand in tokenizer_config.json as text, or as an object that also says how to match them."""
    return token if isinstance(token, str) else str(token["content"])


def _template_source(template: str | list[Mapping[str, str]] | None) -> str | None:
    """A model may have several templates, by name; "default" is the one for plain conversations."""
    if isinstance(template, list):
        return {entry["name"]: entry["template"] for entry in template}.get("default")
    return template
