"""What a request asks for, as one value."""

import pytest

from core.structured_output.form import Form, Spacing, find_form_violations
from core.wire.codec import Decoder
from core.wire.messages import EngineCoreRequest
from core.wire.sampling_params import MAX_FORM_BYTES, StructuredOutputs
from tests.core.wire.recorded import recordings


def nested(depth: int) -> list[object]:
    innermost: list[object] = []
    for _ in range(depth):
        innermost = [innermost]
    return innermost


@pytest.mark.parametrize(
    ("asked", "kind", "text"),
    [
        ({"json": {"type": "object"}}, "json", '{"type": "object"}'),
        ({"json": '{"type":"object"}'}, "json", '{"type":"object"}'),
        ({"regex": "a+"}, "regex", "a+"),
        ({"choice": ["a", "é"]}, "choice", '["a", "é"]'),
        ({"grammar": 'root ::= "a"'}, "grammar", 'root ::= "a"'),
        ({"json_object": True}, "json_object", "true"),
        ({"structural_tag": "{}"}, "structural_tag", "{}"),
    ],
)
def test_each_kind_has_a_text(asked: dict[str, object], kind: str, text: str) -> None:
    """A schema may come as a map, as vllm-rs sends it, or as text; the rest as it is."""
    params = StructuredOutputs(**asked)
    assert not [*find_form_violations(params)]
    assert Form.of(params) == Form(kind, text)


def test_what_genuine_front_ends_send() -> None:
    """Those in Python send every key, vllm-rs only the one that is set, and a schema as a map."""
    forms = {}
    for found in recordings():
        if "_add_structured" in found.name or found.name == "rs_add_grpc_params":
            params = Decoder(EngineCoreRequest, "ADD").decode(found.frames).sampling_params
            assert params is not None
            assert params.structured_outputs is not None
            assert not [*find_form_violations(params.structured_outputs)]
            forms[found.name] = Form.of(params.structured_outputs)
    assert set(forms.values()) == {Form("json_object", "true"), Form("json", '{"type": "object"}'), Form("regex", "a+")}


def test_options_are_part_of_the_form() -> None:
    """So that requests with other ones get grammars of their own."""
    options = {"disable_any_whitespace": True, "disable_additional_properties": True, "whitespace_pattern": " ?"}
    form = Form.of(StructuredOutputs(json="{}", **options))
    assert form == Form("json", "{}", Spacing(is_tight=True, pattern=" ?"), closes_objects=True)
    assert form != Form("json", "{}")


@pytest.mark.parametrize(
    ("asked", "violation"),
    [
        ({}, "structured_outputs must have exactly one of json, regex"),
        ({"json": "{}", "regex": "a"}, "structured_outputs must have exactly one of"),
        ({"json": " "}, "structured_outputs.json must not be blank"),
        ({"json": {"const": b"x"}}, "structured_outputs.json must be JSON: Object of type bytes is not JSON"),
        ({"json": {"allOf": nested(20_000)}}, "structured_outputs.json must be JSON: maximum recursion depth"),
        ({"json": "{}", "whitespace_pattern": " " * MAX_FORM_BYTES}, "structured_outputs.json must have at most"),
        ({"regex": ""}, "structured_outputs.regex must not be blank"),
        ({"grammar": "\n"}, "structured_outputs.grammar must not be blank"),
        ({"structural_tag": ""}, "structured_outputs.structural_tag must not be blank"),
        ({"choice": []}, "structured_outputs.choice must have at least one string"),
        ({"choice": ["a", ""]}, "structured_outputs.choice must have at least one string"),
        ({"json_object": False}, "structured_outputs.json_object must be true, got false"),
        ({"regex": "a" * (MAX_FORM_BYTES + 1)}, f"structured_outputs.regex must have at most {MAX_FORM_BYTES} bytes"),
        ({"choice": ["a" * 1000] * 66}, f"structured_outputs.choice must have at most {MAX_FORM_BYTES} bytes"),
    ],
)
def test_what_shows_without_compiling_is_named(asked: dict[str, object], violation: str) -> None:
    """By the field that is wrong."""
    (found,) = find_form_violations(StructuredOutputs(**asked))
    assert " ".join(found).startswith(violation)
