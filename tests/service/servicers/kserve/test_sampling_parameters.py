"""Sampling parameters by vLLM's names."""

from typing import Any

import pytest

from core.wire.sampling_params import Violation
from service.servicers.kserve.sampling_parameters import given_parameters, read_sampling_parameters
from sluicegate.v1 import sampling_params_pb2 as own
from tests.service.servicers.kserve.requests import infer_request


def read(values: dict[str, Any]) -> own.SamplingParams:
    violations: list[Violation] = []
    sampling, _ = read_sampling_parameters("sampling_parameters", values, violations)
    assert violations == []
    return sampling


def faults(values: dict[str, Any]) -> list[tuple[str, str]]:
    violations: list[Violation] = []
    read_sampling_parameters("sampling_parameters", values, violations)
    return [(violation.field, violation.description) for violation in violations]


def test_defaults() -> None:
    """vLLM's own, whatever the model recommends."""
    given = read({})
    assert given.max_tokens == 16
    assert (given.temperature, given.top_p, given.top_k, given.min_p) == (1.0, 1.0, 0, 0.0)


@pytest.mark.parametrize("name", ["stop_token_ids", "logit_bias", "structured_outputs"])
def test_long_texts_are_not_parsed(name: str) -> None:
    """A list or an object that is spelled has a bound, wherever it stands."""
    ((field, text),) = faults({name: "[" + "1," * 2**19 + "1]"})
    assert field == f"sampling_parameters.{name}"
    assert text.startswith("must have at most 1048576 characters, has 1048579, got '[1,1,")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_tokens", "100", 100),
        ("max_tokens", 100.0, 100),
        ("temperature", "0", 0.0),
        ("temperature", 1, 1.0),
        ("top_p", "0.5", 0.5),
        ("seed", "-7", -7),
        ("ignore_eos", "true", True),
        ("ignore_eos", "False", False),
        ("ignore_eos", 1, True),
        ("stop_token_ids", "[1, 2]", [1, 2]),
        ("stop_token_ids", [1, "2"], [1, 2]),
        ("stop", "[1]", ["[1]"]),
        ("stop", ["a", "b"], ["a", "b"]),
        ("bad_words", '["x"]', ["x"]),
        ("logit_bias", '{"5": "1.5"}', {5: 1.5}),
        ("logit_bias", {"5": -100}, {5: -100.0}),
    ],
)
def test_values_may_be_strings(name: str, value: Any, expected: Any) -> None:
    """A number, a flag, a list or an object, or its spelling; one stop string stays what it is."""
    found = getattr(read({name: value}), name)
    if isinstance(expected, list):
        found = [*found]
    elif isinstance(expected, dict):
        found = {**found}
    assert found == expected


def test_null() -> None:
    """No limit, no seed: as if vLLM's default were None."""
    given = read({"max_tokens": None, "seed": None, "stop": None})
    assert not given.HasField("max_tokens")
    assert not given.HasField("seed")


def test_what_is_elsewhere() -> None:
    """An adapter, and whether special tokens show."""
    violations: list[Violation] = []
    values = {"lora_name": "a", "skip_special_tokens": "false"}
    _, others = read_sampling_parameters("parameters", values, violations)
    assert (others, violations) == ({"lora_name": "a", "skip_special_tokens": False}, [])


@pytest.mark.parametrize("name", ["guided_decoding", "structured_outputs"])
@pytest.mark.parametrize(
    ("form", "field", "expected"),
    [
        ({"json": {"type": "object"}}, "json_schema", '{"type": "object"}'),
        ({"json": '{"type": "object"}', "backend": None}, "json_schema", '{"type": "object"}'),
        ('{"regex": "a+"}', "regex", "a+"),
        ({"json_object": True, "json": None}, "json_object", True),
    ],
)
def test_forms(name: str, form: Any, field: str, expected: Any) -> None:
    """By vLLM's older and newer name, as an object or its spelling."""
    assert getattr(read({name: form}), field) == expected


def test_choices() -> None:
    assert [*read({"structured_outputs": {"choice": ["a", "b"]}}).choice.choices] == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "field", "text"),
    [
        ({"max_tokens": "many"}, "sampling_parameters.max_tokens", "must be a whole number, got 'many'"),
        ({"max_tokens": 1.5}, "sampling_parameters.max_tokens", "must be a whole number, got 1.5"),
        ({"max_tokens": True}, "sampling_parameters.max_tokens", "must be a whole number, got True"),
        ({"max_tokens": float("inf")}, "sampling_parameters.max_tokens", "must be a whole number, got inf"),
        ({"n": 2**40}, "sampling_parameters.n", "must be in the range of its type, got 1099511627776"),
        ({"n": "9" * 5000}, "sampling_parameters.n", "must be"),
        ({"temperature": "warm"}, "sampling_parameters.temperature", "must be a number, got 'warm'"),
        ({"temperature": []}, "sampling_parameters.temperature", "must be a number, got []"),
        ({"ignore_eos": "maybe"}, "sampling_parameters.ignore_eos", "must be true or false, got 'maybe'"),
        ({"ignore_eos": 2}, "sampling_parameters.ignore_eos", "must be true or false, got 2"),
        ({"stop": 5}, "sampling_parameters.stop", "must be a list, got 5"),
        ({"stop": [5]}, "sampling_parameters.stop", "must be text, got [5]"),
        ({"stop": "\ud800"}, "sampling_parameters.stop", "must be text"),
        ({"stop_token_ids": [-1]}, "sampling_parameters.stop_token_ids", "must be in the range of its type, got [-1]"),
        ({"stop_token_ids": "[1"}, "sampling_parameters.stop_token_ids", "must be JSON"),
        ({"stop_token_ids": "[" * 100_000}, "sampling_parameters.stop_token_ids", "must be JSON"),
        ({"logit_bias": {"x": 1}}, "sampling_parameters.logit_bias", "must be a whole number, got {'x': 1}"),
        ({"logit_bias": {"-5": 1}}, "sampling_parameters.logit_bias", "must be in the range of its type"),
        (
            {"guided_decoding": {"json": "{}", "regex": "x"}},
            "sampling_parameters.guided_decoding",
            "must name one form",
        ),
        ({"guided_decoding": {"song": "x"}}, "sampling_parameters.guided_decoding", "must name one of json,"),
        ({"guided_decoding": {"regex": "\ud800"}}, "sampling_parameters.guided_decoding", "must be in the range"),
        ({"guided_decoding": []}, "sampling_parameters.guided_decoding", "must be a JSON object, got []"),
        ({"lora_name": 5}, "sampling_parameters.lora_name", "must be text, got 5"),
        ({"best_of": 2}, "sampling_parameters", "no parameter 'best_of' is known"),
    ],
)
def test_bad_values(values: dict[str, Any], field: str, text: str) -> None:
    """Each is named, with what it should be and what it is."""
    ((found_field, found_text),) = faults(values)
    assert found_field == field
    assert text in found_text
    assert len(found_text) < 300


def test_parameters_of_the_request() -> None:
    """Those of the protocol are not for the model."""
    parameters = {"max_tokens": 5, "temperature": 0.5, "ignore_eos": True, "stop": "x"}
    reserved = {"triton_enable_empty_final_response": True, "sequence_id": 7, "priority": 1, "timeout": 5}
    request = infer_request(parameters=parameters | reserved)
    assert given_parameters(request) == parameters
