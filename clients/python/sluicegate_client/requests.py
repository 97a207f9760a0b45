"""Keyword arguments in, request messages out."""

import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from google.protobuf.message import Message

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1 import sampling_params_pb2 as sampling_pb
from sluicegate_client.embeds import embeds_message

_Message = TypeVar("_Message", bound=Message)

ChatMessage = Mapping[str, str]
"""One turn of a conversation: ``{"role": "user", "content": "Hello"}``."""


class GenerateOptions(TypedDict, total=False):
    """What ``generate`` and ``stream`` take. Left out or None: the model's own default, then the proto's.

    Bounds and defaults stand beside each field in ``sluicegate/v1/sampling_params.proto``.
    """

    token_ids: Sequence[int] | None
    """The prompt as tokens, instead of text."""
    chat: Sequence[ChatMessage] | None
    """The prompt as a conversation, instead of text."""
    prompt_embeds: Any
    """The prompt as rows [tokens, hidden size] of float32 or float16, instead of text; see ``embeds_message``."""
    add_generation_prompt: bool | None
    template_kwargs: Mapping[str, Any] | None
    """Further variables for the chat template."""

    n: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None
    max_tokens: int | None
    min_tokens: int | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    ignore_eos: bool | None
    include_stop_str_in_output: bool | None
    logit_bias: Mapping[int, float] | None
    allowed_token_ids: Sequence[int] | None
    bad_words: Sequence[str] | None
    logprobs: int | None
    prompt_logprobs: int | None
    logprob_token_ids: Sequence[int] | None
    repetition_detection: Mapping[str, int] | None
    skip_reading_prefix_cache: bool | None
    truncate_prompt_tokens: int | None
    json_schema: str | Mapping[str, Any] | None
    regex: str | None
    choice: Sequence[str] | None
    grammar: str | None
    json_object: bool | None
    structural_tag: str | None

    return_text: bool | None
    """Default true."""
    return_token_ids: bool | None
    """Default true."""
    skip_special_tokens: bool | None
    echo_prompt_token_ids: bool | None

    request_id: str | None
    model: str | None
    priority: int | None
    cache_salt: str | None
    lora_name: str | None
    data_parallel_rank: int | None
    allow_inexact_resume: bool | None


_SAMPLING = frozenset(sampling_pb.SamplingParams.DESCRIPTOR.fields_by_name)
_FORMS = frozenset(
    field.name for field in sampling_pb.SamplingParams.DESCRIPTOR.oneofs_by_name["structured_output"].fields
)
_PROMPT = frozenset({"token_ids", "chat", "prompt_embeds", "add_generation_prompt", "template_kwargs"})
_OUTPUT = frozenset({"return_text", "return_token_ids", "skip_special_tokens", "echo_prompt_token_ids"})
_REQUEST = GenerateOptions.__annotations__.keys() - _SAMPLING - _PROMPT - _OUTPUT


def generate_request(text: str | None, options: GenerateOptions) -> pb.GenerateRequest:
    """Raises TypeError for an unknown option or a value of the wrong type, ValueError for one that cannot be sent."""
    if unknown := options.keys() - GenerateOptions.__annotations__.keys():
        raise TypeError(f"unknown option {min(unknown)!r}")
    given = {name: value for name, value in options.items() if value is not None}
    parts = {
        "sampling_params": _message(sampling_pb.SamplingParams, _sampling_fields(_part(given, _SAMPLING))),
        "output_options": _message(pb.OutputOptions, _output_fields(_part(given, _OUTPUT))),
    }
    return _message(pb.GenerateRequest, _prompt(text, **_part(given, _PROMPT)) | _part(given, _REQUEST) | parts)


def tokenize_request(
    text: str | None, chat: Sequence[ChatMessage] | None, add_special_tokens: bool, model: str
) -> pb.TokenizeRequest:
    """Raises ValueError unless exactly one of ``text`` and ``chat`` is given."""
    return pb.TokenizeRequest(model=model, add_special_tokens=add_special_tokens, **_prompt(text, chat=chat))


def detokenize_request(token_ids: Sequence[int], skip_special_tokens: bool, model: str) -> pb.DetokenizeRequest:
    """Raises ValueError for a negative token."""
    return pb.DetokenizeRequest(model=model, token_ids=token_ids, skip_special_tokens=skip_special_tokens)


def embed_request(
    text: str | None, token_ids: Sequence[int] | None, dimensions: int | None, normalize: bool | None, model: str
) -> pb.EmbedRequest:
    """Raises ValueError unless there is exactly one of ``text`` and ``token_ids``, and for negative numbers."""
    if (text is None) == (token_ids is None):
        raise ValueError("give exactly one of text and token_ids")
    request = pb.EmbedRequest(model=model, dimensions=dimensions, normalize=normalize)
    if text is not None:
        request.text = text
    if token_ids is not None:
        request.token_ids.CopyFrom(pb.TokenIds(ids=token_ids))
    return request


def _part(options: Mapping[str, Any], names: frozenset[str] | set[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}


def _message(message_type: type[_Message], fields: Mapping[str, Any]) -> _Message:
    """``message_type(**fields)``, with an error that names the field."""
    message = message_type()
    for name, value in fields.items():
        try:
            message.MergeFrom(message_type(**{name: value}))
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{name}={reprlib.repr(value)}: {error}") from error
    return message


def _sampling_fields(options: dict[str, Any]) -> dict[str, Any]:
    if len(forms := sorted(options.keys() & _FORMS)) > 1:  # Of several the message would keep one in silence.
        raise ValueError(f"give at most one of {', '.join(sorted(_FORMS))}, got {' and '.join(forms)}")
    if isinstance(options.get("choice"), str):
        raise TypeError(f"choice must be a list of texts, got {reprlib.repr(options['choice'])}")
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    if isinstance(options.get("json_schema"), Mapping):
        options["json_schema"] = json.dumps(options["json_schema"])
    if "choice" in options:
        options["choice"] = sampling_pb.Choice(choices=options["choice"])
    return options


def _output_fields(options: dict[str, Any]) -> dict[str, Any]:
    return {"token_ids": True} | {name.removeprefix("return_"): value for name, value in options.items()}


def _prompt(
    text: str | None,
    token_ids: Sequence[int] | None = None,
    chat: Sequence[ChatMessage] | None = None,
    prompt_embeds: Any = None,
    **chat_options: Any,
) -> dict[str, Any]:
    """The member of the proto's oneof that was given."""
    given = {
        "text": text,
        "token_ids": None if token_ids is None else _message(pb.TokenIds, {"ids": token_ids}),
        "chat": None if chat is None else _chat(chat, **chat_options),
        "prompt_embeds": None if prompt_embeds is None else embeds_message(prompt_embeds),
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) != 1:
        raise ValueError("give the prompt in exactly one way: as text, as token_ids, as chat or as prompt_embeds")
    if chat is None and chat_options:
        raise ValueError(f"{min(chat_options)} goes with chat only")
    return chosen


def _chat(
    messages: Sequence[ChatMessage],
    add_generation_prompt: bool | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> pb.Chat:
    turns = [pb.ChatMessage(**message) for message in messages]
    chat = pb.Chat(messages=turns, add_generation_prompt=add_generation_prompt)
    if template_kwargs is not None:
        chat.template_kwargs.update(template_kwargs)
    return chat
