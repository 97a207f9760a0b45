"""The prompt of a request, as tokens."""

from typing import Any, NamedTuple

from google.protobuf.struct_pb2 import Value

from core.wire.sampling_params import Violation
from core.wire.tensor import Tensor
from service.prompt_embeds import read_prompt_embeds
from service.served_model import ServedModel
from service.text.chat_template import ChatTemplateError
from service.text.tokenizer import Tokenizer
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.sampling_params_pb2 import SamplingParams

MAX_CHAT_MESSAGES = 2**16
"""Sixteen megabytes hold two million: a template works at them for a minute, and no model reads them."""
_PIECE_TOKENS = 2**13
_RESERVED_KWARGS = ("messages", "add_generation_prompt")


class Prompt(NamedTuple):
    """``token_ids``, or ``embeds`` [num_tokens, hidden_size] and no token."""

    token_ids: list[int]
    embeds: Tensor | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids) if self.embeds is None else len(self.embeds.array)


def read_prompt(request: pb.GenerateRequest, model: ServedModel, violations: list[Violation]) -> Prompt:
    """The prompt, truncated as asked. What is wrong is added to ``violations``; then it is empty."""
    num_known = len(violations)
    if request.WhichOneof("prompt") == "prompt_embeds":
        prompt = Prompt([], read_prompt_embeds(request, model, violations))
    else:
        token_ids = _encoded(request, model, violations)
        prompt = Prompt(_truncated(token_ids, request.sampling_params, model.max_model_len, violations))
    if prompt.num_tokens >= model.max_model_len:
        field = str(request.WhichOneof("prompt"))
        violations.append(Violation(field, _too_long(prompt.num_tokens, model.max_model_len)))
    return prompt if len(violations) == num_known else Prompt([])


def read_input(request: pb.EmbedRequest, model: ServedModel, violations: list[Violation]) -> list[int]:
    """The tokens to embed; nothing follows them, so that they may be max_model_len."""
    match request.WhichOneof("input"):
        case "text":
            # Tokenizers of such models make one token of much: of blanks, of words that they do not know.
            token_ids = encode_text(request.text, True, model.tokenizer, violations, model.max_excess_text_bytes)
        case "token_ids" if request.token_ids.ids:
            token_ids = read_token_ids("token_ids.ids", request.token_ids.ids, model.vocab_size, violations)
        case "token_ids":
            token_ids = []
            violations.append(Violation("token_ids.ids", "must have at least one token"))
        case _:
            token_ids = []
            violations.append(Violation("input", "is required: one of text, token_ids"))
    if len(token_ids) > model.max_model_len:
        bound = f"must have at most max_model_len ({model.max_model_len})"
        violations.append(Violation(str(request.WhichOneof("input")), f"has {len(token_ids)} tokens, {bound}"))
    return token_ids


def _encoded(request: pb.GenerateRequest, model: ServedModel, violations: list[Violation]) -> list[int]:
    # Of a text that is to be truncated only the last tokens have to fit.
    is_truncated = request.sampling_params.HasField("truncate_prompt_tokens")
    max_bytes = model.max_excess_text_bytes if is_truncated else model.max_text_bytes
    match request.WhichOneof("prompt"):
        case "text":
            return encode_text(request.text, True, model.tokenizer, violations, max_bytes)
        case "chat":
            return encode_chat(request.chat, model.tokenizer, violations, max_bytes)
        case "token_ids" if (num_tokens := len(request.token_ids.ids)) >= model.max_model_len and not is_truncated:
            violations.append(Violation("token_ids", _too_long(num_tokens, model.max_model_len)))
        case "token_ids" if request.token_ids.ids:
            return read_token_ids("token_ids.ids", request.token_ids.ids, model.vocab_size, violations)
        case "token_ids":
            violations.append(Violation("token_ids.ids", "must have at least one token"))
        case _:
            violations.append(Violation("prompt", "is required: one of text, token_ids, chat, prompt_embeds"))
    return []


def encode_text(
    text: str, add_special_tokens: bool, tokenizer: Tokenizer, violations: list[Violation], max_bytes: int
) -> list[int]:
    """The tokens of ``text``, which may not be empty even where a BOS would be added."""
    if _is_too_large("text", text, max_bytes, violations):
        return []
    token_ids = tokenizer.encode(text, add_special_tokens) if text else []
    if not token_ids:
        violations.append(Violation("text", "must have at least one token" if text else "must not be empty"))
    return token_ids


def encode_chat(chat: pb.Chat, tokenizer: Tokenizer, violations: list[Violation], max_bytes: int) -> list[int]:
    """The tokens of ``chat`` in the model's template."""
    found = _chat_violations(chat)
    violations += found
    if found:
        return []
    template_kwargs = {name: _plain(value) for name, value in chat.template_kwargs.fields.items()}
    messages = [{"role": message.role, "content": message.content} for message in chat.messages]
    add_generation_prompt = chat.add_generation_prompt if chat.HasField("add_generation_prompt") else True
    try:
        text = tokenizer.render_chat(messages, add_generation_prompt, template_kwargs)
    except ChatTemplateError as error:
        violations.append(Violation("chat", str(error)))
        return []
    if _is_too_large("chat", text, max_bytes, violations):
        return []
    token_ids = tokenizer.encode_chat(text)
    if not token_ids:
        violations.append(Violation("chat", "the chat template made no token of it"))
    return token_ids


def read_token_ids(field: str, ids: Any, vocab_size: int, violations: list[Violation]) -> list[int]:
    """``ids`` as a list, each of them in the vocabulary; if one is not, empty.

    A piece at a time: to copy a million numbers at once would let no other thread run meanwhile.
    """
    token_ids: list[int] = []
    for start in range(0, len(ids), _PIECE_TOKENS):
        piece = ids[start : start + _PIECE_TOKENS]
        if (largest := max(piece)) >= vocab_size:
            place = start + piece.index(largest)
            bound = f"token ids must be in [0, {vocab_size - 1}], got {largest} at {place}"
            violations.append(Violation(field, bound))
            return []
        token_ids += piece
    return token_ids


def _is_too_large(field: str, text: str, max_bytes: int, violations: list[Violation]) -> bool:
    """Tokenizing what cannot fit would take seconds for each megabyte."""
    size = len(text.encode())
    if size <= max_bytes:
        return False
    violations.append(Violation(field, f"has {size} bytes, must have at most {max_bytes}"))
    return True


def _chat_violations(chat: pb.Chat) -> list[Violation]:
    if not chat.messages:
        return [Violation("chat.messages", "must have at least one message")]
    if (count := len(chat.messages)) > MAX_CHAT_MESSAGES:
        return [Violation("chat.messages", f"must have at most {MAX_CHAT_MESSAGES} messages, got {count}")]
    nameless = next((index for index, message in enumerate(chat.messages) if not message.role), None)
    found = [] if nameless is None else [Violation(f"chat.messages[{nameless}].role", "must not be empty")]
    reserved = [name for name in _RESERVED_KWARGS if name in chat.template_kwargs.fields]
    if reserved:
        found.append(Violation("chat.template_kwargs", f"may not name {' or '.join(reserved)}"))
    return found


def _plain(value: Value) -> Any:
    """As JSON would have it: Struct knows only floats, and a template that prints 1024 should not print 1024.0."""
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return {key: _plain(item) for key, item in value.struct_value.fields.items()}
    if kind == "list_value":
        return [_plain(item) for item in value.list_value.values]
    if kind == "number_value" and value.number_value.is_integer():
        return int(value.number_value)
    return None if kind in (None, "null_value") else getattr(value, kind)


def _truncated(
    token_ids: list[int], params: SamplingParams, max_model_len: int, violations: list[Violation]
) -> list[int]:
    if not params.HasField("truncate_prompt_tokens"):
        return token_ids
    num_kept = params.truncate_prompt_tokens
    if num_kept == -1:
        num_output_tokens = params.max_tokens if params.HasField("max_tokens") else 1
        num_kept = max(max_model_len - num_output_tokens, 1)
    if num_kept < 1:
        bound = "must be -1 (as many as fit) or at least 1"
        violations.append(Violation("sampling_params.truncate_prompt_tokens", f"{bound}, got {num_kept}"))
        return token_ids
    return token_ids[-num_kept:]


def _too_long(num_tokens: int, max_model_len: int) -> str:
    return (
        f"has {num_tokens} tokens, must have less than max_model_len ({max_model_len}): one at least is for the output"
    )
