"""service.prompt: text, tokens or a conversation become the tokens of the prompt."""

from dataclasses import replace
from typing import Any

import pytest

from service.models import ModelFiles
from service.prompt import MAX_CHAT_MESSAGES
from service.served_model import ModelText, ServedModel
from service.translate import translate
from sluicegate.v1 import inference_service_pb2 as pb
from tests.service.byte_model import EOS_TOKEN_ID
from tests.service.translation import faults_of, translated

_HELLO = 19_556
_USER = pb.ChatMessage(role="user", content="hi")


def test_text_is_tokenized(smollm2: ServedModel) -> None:
    """As it stands."""
    assert translated(smollm2).prompt_token_ids == [_HELLO]


def test_token_ids_are_taken_as_they_are(smollm2: ServedModel) -> None:
    """The last id of the vocabulary too."""
    request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=[0, 49_151]))
    assert translate(request, smollm2).prompt_token_ids == [0, 49_151]


def test_chat_goes_through_the_template(smollm2: ServedModel) -> None:
    """With the assistant's opening unless told otherwise."""
    opened = translate(pb.GenerateRequest(chat=pb.Chat(messages=[_USER])), smollm2).prompt_token_ids
    closed = pb.GenerateRequest(chat=pb.Chat(messages=[_USER], add_generation_prompt=False))
    assert opened == smollm2.tokenizer.encode_chat(smollm2.tokenizer.render_chat([{"role": "user", "content": "hi"}]))
    assert opened[: -len([1, 520, 9531, 198])] == translate(closed, smollm2).prompt_token_ids


def test_template_kwargs_reach_the_template_as_json_would_have_them(smollm2: ServedModel) -> None:
    """Whole numbers are integers, in lists and maps as well."""
    config = {"chat_template": "{{ budget }} {{ list }} {{ map.x }} {{ on }} {{ ratio }}"}
    tokenizer = type(smollm2.tokenizer)(smollm2.tokenizer.backend, config, 0)
    chat = pb.Chat(messages=[_USER])
    chat.template_kwargs.update({"budget": 1024, "list": [1, 2.5], "map": {"x": 3}, "on": True, "ratio": 0.5})
    request = translate(pb.GenerateRequest(chat=chat), replace(smollm2, tokenizer=tokenizer))
    assert tokenizer.decode(request.prompt_token_ids) == "1024 [1, 2.5] 3 True 0.5"


@pytest.mark.parametrize(("num_kept", "expected"), [(2, [6, 7]), (4, [4, 5, 6, 7]), (9, [4, 5, 6, 7])])
def test_prompt_is_truncated_to_its_end(smollm2: ServedModel, num_kept: int, expected: list[int]) -> None:
    """The last tokens stay."""
    request = pb.GenerateRequest(
        token_ids=pb.TokenIds(ids=[4, 5, 6, 7]), sampling_params={"truncate_prompt_tokens": num_kept}
    )
    assert translate(request, smollm2).prompt_token_ids == expected


@pytest.mark.parametrize(("max_tokens", "num_kept"), [(None, 15), (6, 10), (16, 1), (100, 1)])
def test_truncation_to_what_fits_leaves_room_for_the_output(
    smollm2: ServedModel, max_tokens: int | None, num_kept: int
) -> None:
    """-1: max_model_len less max_tokens, or less one; never less than one token."""
    request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=range(40)), sampling_params={"truncate_prompt_tokens": -1})
    if max_tokens is not None:
        request.sampling_params.max_tokens = max_tokens
    translated = translate(request, replace(smollm2, max_model_len=16))
    assert translated.prompt_token_ids == [*range(40)][-num_kept:]


@pytest.mark.parametrize(("num_tokens", "num_left"), [(1, 15), (15, 1)])
def test_max_tokens_is_what_is_left_by_default(smollm2: ServedModel, num_tokens: int, num_left: int) -> None:
    """A prompt of max_model_len - 1 leaves one."""
    request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=[5] * num_tokens))
    assert translate(request, replace(smollm2, max_model_len=16)).sampling_params.max_tokens == num_left


@pytest.mark.parametrize("num_tokens", [16, 17, 1000])
def test_prompt_that_leaves_no_room_is_refused_with_both_numbers(smollm2: ServedModel, num_tokens: int) -> None:
    """One of max_model_len tokens too."""
    request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=[5] * num_tokens))
    faults = faults_of(lambda: translate(request, replace(smollm2, max_model_len=16)))
    assert faults.keys() == {"token_ids"}
    assert f"has {num_tokens} tokens" in faults["token_ids"]
    assert "max_model_len (16)" in faults["token_ids"]


def _chat(*messages: pb.ChatMessage, **kwargs: Any) -> pb.Chat:
    chat = pb.Chat(messages=messages)
    chat.template_kwargs.update(kwargs)
    return chat


@pytest.mark.parametrize(
    ("prompt", "field"),
    [
        ({}, "prompt"),
        ({"text": ""}, "text"),
        ({"token_ids": pb.TokenIds()}, "token_ids.ids"),
        ({"token_ids": pb.TokenIds(ids=[5, 49_152])}, "token_ids.ids"),
        ({"token_ids": pb.TokenIds(ids=[2**32 - 1])}, "token_ids.ids"),
        ({"chat": pb.Chat()}, "chat.messages"),
        ({"chat": _chat(*[_USER] * (MAX_CHAT_MESSAGES + 1))}, "chat.messages"),
        ({"chat": _chat(_USER, pb.ChatMessage(content="x"))}, "chat.messages[1].role"),
        ({"chat": _chat(_USER, messages=1)}, "chat.template_kwargs"),
        ({"chat": _chat(_USER, add_generation_prompt=False)}, "chat.template_kwargs"),
    ],
)
def test_wrong_prompt_is_named(smollm2: ServedModel, prompt: dict[str, Any], field: str) -> None:
    """That field, and no other."""
    assert faults_of(lambda: translate(pb.GenerateRequest(**prompt), smollm2)).keys() == {field}


def test_failing_template_names_the_chat(smollm2: ServedModel) -> None:
    """With what the template said; and a model without one says that."""
    for config, said in (
        ({"chat_template": "{{ raise_exception('no system role') }}"}, "no system role"),
        ({}, "no chat"),
    ):
        tokenizer = type(smollm2.tokenizer)(smollm2.tokenizer.backend, config, 0)
        model = replace(smollm2, tokenizer=tokenizer)
        request = pb.GenerateRequest(chat=_chat(_USER))
        faults = faults_of(lambda request=request, model=model: translate(request, model))  # type: ignore[misc]
        assert faults.keys() == {"chat"}
        assert said in faults["chat"]


def test_text_that_cannot_fit_is_refused_before_it_is_tokenized(byte_model: ModelFiles) -> None:
    """Text and chat alike, by bytes: the longest token has 5. What may fit is tokenized, and what is truncated too."""
    model = ServedModel(**vars(ModelText.load(byte_model)), max_model_len=100)
    fits = pb.GenerateRequest(text="<eos>" * 99)
    assert len(translate(fits, model).prompt_token_ids) == 99
    faults = faults_of(lambda: translate(pb.GenerateRequest(text="<eos>" * 100), model))
    assert "has 100 tokens" in faults["text"]
    large = "<eos>" * 100 + "x"
    faults = faults_of(lambda: translate(pb.GenerateRequest(text=large), model))
    assert "has 501 bytes, must have at most 500" in faults["text"]
    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content=large)])
    faults = faults_of(lambda: translate(pb.GenerateRequest(chat=chat), model))
    assert "has 508 bytes, must have at most 500" in faults["chat"]
    truncated = pb.GenerateRequest(text=large, sampling_params={"truncate_prompt_tokens": 2})
    assert translate(truncated, model).prompt_token_ids == [EOS_TOKEN_ID, ord("x")]


def test_a_long_list_of_tokens_is_taken_in_pieces(smollm2: ServedModel) -> None:
    """In order, and a wrong one is named by its place in the whole list."""
    long = replace(smollm2, max_model_len=200_000)
    ids = [index % 49_152 for index in range(100_000)]
    assert translate(pb.GenerateRequest(token_ids=pb.TokenIds(ids=ids)), long).prompt_token_ids == ids
    ids[90_000] = 49_152
    faults = faults_of(lambda: translate(pb.GenerateRequest(token_ids=pb.TokenIds(ids=ids)), long))
    assert faults == {"token_ids.ids": "token ids must be in [0, 49151], got 49152 at 90000"}


def test_too_many_tokens_are_not_looked_at(smollm2: ServedModel) -> None:
    """Unless they are to be truncated: then the last ones count."""
    ids = [49_152, *range(20_000)]
    request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=ids))
    (fault,) = faults_of(lambda: translate(request, smollm2)).values()
    assert fault.startswith("has 20001 tokens, must have less than max_model_len")
    request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=ids[1:]), sampling_params={"truncate_prompt_tokens": 5})
    assert translate(request, smollm2).prompt_token_ids == ids[-5:]
