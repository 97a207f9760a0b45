from typing import Any

import pytest

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.sampling_params_pb2 import SamplingParams
from sluicegate_client.requests import GenerateOptions, generate_request, tokenize_request


def test_an_option_left_out_or_none_stays_unset_and_zero_is_sent() -> None:
    """None means the model's default; an explicit zero means zero."""
    params = generate_request("x", {"temperature": 0, "top_p": None}).sampling_params
    assert params.HasField("temperature")
    assert params.temperature == 0
    assert not params.HasField("top_p")
    assert not params.HasField("seed")


def test_every_sampling_parameter_of_the_proto_is_an_option() -> None:
    """The keyword arguments keep up with the proto."""
    assert set(SamplingParams.DESCRIPTOR.fields_by_name) <= GenerateOptions.__annotations__.keys()


def test_every_field_of_the_request_is_an_option() -> None:
    """Whatever GenerateRequest holds can be given by keyword."""
    fields = set(pb.GenerateRequest.DESCRIPTOR.fields_by_name) - {"text", "sampling_params", "output_options"}
    assert fields <= GenerateOptions.__annotations__.keys()


def test_token_ids_are_asked_for_unless_declined() -> None:
    """Answers hold text and tokens by default."""
    assert generate_request("x", {}).output_options == pb.OutputOptions(token_ids=True)
    declined = generate_request("x", {"return_token_ids": False, "return_text": False}).output_options
    assert declined == pb.OutputOptions(token_ids=False, text=False)


def test_plain_values_become_the_protos_shapes() -> None:
    """One stop string, a schema as a dict and a list of choices are taken as they are."""
    params = generate_request("x", {"stop": "end", "json_schema": {"type": "object"}}).sampling_params
    assert list(params.stop) == ["end"]
    assert params.json_schema == '{"type": "object"}'
    assert list(generate_request("x", {"choice": ["a", "b"]}).sampling_params.choice.choices) == ["a", "b"]


def test_a_chat_is_sent_with_its_template_options() -> None:
    """Messages, add_generation_prompt and template_kwargs reach the proto."""
    request = generate_request(
        None,
        {
            "chat": [{"role": "user", "content": "Hi"}],
            "add_generation_prompt": False,
            "template_kwargs": {"tools": [1, None], "deep": {"a": "b"}},
        },
    )
    assert request.chat.messages[0] == pb.ChatMessage(role="user", content="Hi")
    assert request.chat.HasField("add_generation_prompt")
    assert request.chat.template_kwargs["deep"]["a"] == "b"


@pytest.mark.parametrize("options", [{}, {"token_ids": [1], "chat": []}])
def test_the_prompt_is_given_in_exactly_one_way(options: GenerateOptions) -> None:
    """No prompt, or two, is an error before the call."""
    with pytest.raises(ValueError, match="exactly one way"):
        generate_request(None, options)
    with pytest.raises(ValueError, match="exactly one way"):
        tokenize_request("x", [], True, "")


def test_options_of_the_chat_template_need_a_chat() -> None:
    """They would silently do nothing otherwise."""
    with pytest.raises(ValueError, match="template_kwargs goes with chat only"):
        generate_request("x", {"template_kwargs": {}})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"temprature": 0}, TypeError, "unknown option 'temprature'"),
        ({"temperature": "hot"}, TypeError, "temperature='hot'"),
        ({"n": 2**40}, ValueError, "n=1099511627776"),
        ({"request_id": 3}, TypeError, "request_id=3"),
        ({"stop": [1]}, TypeError, r"stop=\[1\]"),
    ],
)
def test_what_cannot_be_sent_is_named(options: GenerateOptions, error: type[Exception], message: str) -> None:
    """A value of the wrong type or size raises an error with the option's name."""
    with pytest.raises(error, match=message):
        generate_request("x", options)


def test_negative_tokens_are_named() -> None:
    """The message shows the tokens."""
    with pytest.raises(ValueError, match=r"ids=\[-1\]"):
        generate_request(None, {"token_ids": [-1]})


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"choice": "yes"}, TypeError, "choice must be a list of texts, got 'yes'"),
        ({"choice": ["yes"], "regex": "no"}, ValueError, "got choice and regex"),
    ],
)
def test_a_form_that_would_be_taken_for_another(options: Any, error: type[Exception], words: str) -> None:
    """It is refused here: the message would hold letters, or the last of several, and nobody would notice."""
    with pytest.raises(error, match=words):
        generate_request("x", options)
