"""service.translate: the request as a whole, and the two that only turn text into tokens and back."""

from dataclasses import replace
from typing import Any

import pytest

from service.errors import NotFound
from service.generation_request import OutputChoices
from service.served_model import ServedModel
from service.translate import detokenize, tokenize, translate
from sluicegate.v1 import inference_service_pb2 as pb
from tests.service.translation import faults_of, translated

_HELLO = 19_556
_CHAT = pb.Chat(messages=[pb.ChatMessage(role="user", content="hi")])


def test_all_faults_are_reported_at_once(smollm2: ServedModel) -> None:
    """Of the prompt, the parameters and the envelope; a wrong prompt blames no other field."""
    request = pb.GenerateRequest(
        request_id="\n",
        data_parallel_rank=1,
        token_ids=pb.TokenIds(),
        sampling_params={"top_p": 2, "stop": [""], "n": 0},
    )
    fields = {"request_id", "data_parallel_rank", "token_ids.ids"}
    fields |= {f"sampling_params.{name}" for name in ("top_p", "stop", "n")}
    assert faults_of(lambda: translate(request, smollm2)).keys() == fields


def test_request_id_is_kept_or_made(smollm2: ServedModel) -> None:
    """256 bytes are allowed; two that were made differ."""
    name = "ü" * 128
    assert translated(smollm2, request_id=name).request_id == name
    made = {translated(smollm2).request_id for _ in range(2)}
    assert len(made) == 2
    assert all(made)


@pytest.mark.parametrize("request_id", ["x" * 257, "ü" * 129, "a\nb", "\x00", "\u2028"])
def test_request_id_that_is_long_or_unprintable_is_named(smollm2: ServedModel, request_id: str) -> None:
    """It goes into logs and headers."""
    assert faults_of(lambda: translated(smollm2, request_id=request_id)).keys() == {"request_id"}


def test_output_options(smollm2: ServedModel) -> None:
    """Text alone by default, and each choice by its name."""
    assert translated(smollm2).output == OutputChoices()
    options = {"token_ids": True, "text": False, "skip_special_tokens": False, "echo_prompt_token_ids": True}
    assert translated(smollm2, output_options=options).output == OutputChoices(
        text=False, token_ids=True, skip_special_tokens=False, echo_prompt_token_ids=True
    )


def test_envelope(smollm2: ServedModel) -> None:
    """Priority, salt and rank; an empty salt is none, rank 0 is a choice."""
    assert translated(smollm2).data_parallel_rank is None
    assert translated(smollm2).cache_salt is None
    request = translated(
        replace(smollm2, data_parallel_size=2), priority=-3, cache_salt="s", data_parallel_rank=1, model="smollm2-135m"
    )
    assert (request.priority, request.cache_salt, request.data_parallel_rank) == (-3, "s", 1)
    assert translated(smollm2, data_parallel_rank=0).data_parallel_rank == 0
    assert [translated(smollm2, allow_inexact_resume=may).may_differ for may in (False, True)] == [False, True]


def test_salt_is_bounded(smollm2: ServedModel) -> None:
    """Each of the n sequences carries it."""
    assert translated(smollm2, cache_salt="s" * 1024).cache_salt == "s" * 1024
    assert faults_of(lambda: translated(smollm2, cache_salt="s" * 1025)).keys() == {"cache_salt"}


def test_text_to_tokenize_is_bounded_although_it_need_not_fit(smollm2: ServedModel) -> None:
    """To tokenize, and to truncate: both may exceed the context, but not by any size."""
    large = "1 " * (smollm2.max_excess_text_bytes // 2 + 1)
    bound = f"must have at most {smollm2.max_excess_text_bytes}"
    assert bound in faults_of(lambda: tokenize(pb.TokenizeRequest(text=large), smollm2))["text"]
    truncating = pb.GenerateRequest(text=large, sampling_params={"truncate_prompt_tokens": 2})
    assert bound in faults_of(lambda: translate(truncating, smollm2))["text"]


@pytest.mark.parametrize(
    ("fields", "reason"), [({"model": "gpt-5"}, "MODEL_NOT_FOUND"), ({"lora_name": "x" * 10**6}, "LORA_NOT_FOUND")]
)
def test_unknown_model_and_lora_are_not_found(smollm2: ServedModel, fields: dict[str, str], reason: str) -> None:
    """Before anything else is looked at, and however long the name."""
    with pytest.raises(NotFound) as caught:
        translate(pb.GenerateRequest(**fields), smollm2)
    assert caught.value.reason == reason
    assert len(caught.value.message) < 200


def test_tokenize_gives_the_tokens_that_generate_would_use(smollm2: ServedModel) -> None:
    """Text or chat, spelled out on demand."""
    response = tokenize(pb.TokenizeRequest(text="Hello world", return_tokens=True), smollm2)
    assert response.token_ids == [_HELLO, 905]
    assert response.tokens == ["Hello", "Ġworld"]
    assert response.max_model_len == 8192
    generated = translate(pb.GenerateRequest(chat=_CHAT), smollm2).prompt_token_ids
    response = tokenize(pb.TokenizeRequest(chat=_CHAT), smollm2)
    assert response.token_ids == generated
    assert not response.tokens


@pytest.mark.parametrize(
    ("fields", "field"),
    [({}, "input"), ({"text": ""}, "text"), ({"chat": pb.Chat()}, "chat.messages")],
)
def test_wrong_tokenize_request_is_named(smollm2: ServedModel, fields: dict[str, Any], field: str) -> None:
    """As for Generate."""
    assert faults_of(lambda: tokenize(pb.TokenizeRequest(**fields), smollm2)).keys() == {field}
    with pytest.raises(NotFound):
        tokenize(pb.TokenizeRequest(model="other", **fields), smollm2)


def test_detokenize_gives_the_text(smollm2: ServedModel) -> None:
    """Special tokens are spelled out unless they are to be skipped; no tokens are no text."""
    assert detokenize(pb.DetokenizeRequest(token_ids=[_HELLO, 2]), smollm2).text == "Hello<|im_end|>"
    assert detokenize(pb.DetokenizeRequest(token_ids=[_HELLO, 2], skip_special_tokens=True), smollm2).text == "Hello"
    assert detokenize(pb.DetokenizeRequest(), smollm2).text == ""


def test_detokenize_refuses_ids_outside_the_vocabulary(smollm2: ServedModel) -> None:
    """Naming the id and its place."""
    faults = faults_of(lambda: detokenize(pb.DetokenizeRequest(token_ids=[1, 49_152]), smollm2))
    assert faults == {"token_ids": "token ids must be in [0, 49151], got 49152 at 1"}
    with pytest.raises(NotFound):
        detokenize(pb.DetokenizeRequest(model="other"), smollm2)
