"""Forms as llguidance takes them."""

import json
from typing import Any

import pytest
from llguidance import LLTokenizer

from core.structured_output.form import FormError, Kind
from tests.core.structured_output.following import follows, matcher_of

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}
TREE = {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (PERSON, ['{"name":"é"}', '{ "name": "x",\n "age": 3}'], ["{}", '{"name":1}', '{"name":"x","age":-1}', "[]"]),
        (TREE, ["[]", "[[],[[]]]"], ["{}", "[1]"]),
        ({"enum": ["a", 1, None]}, ['"a"', "1", "null"], ['"b"', "2"]),
        ({"type": "string", "pattern": "^[a-c]{2}$"}, ['"ab"'], ['"a"', '"abc"', '"ax"']),
        ({"type": "string", "format": "date"}, ['"2026-11-30"'], ['"2026-13-30"', '"today"']),
        ({"type": "string", "minLength": 1, "maxLength": 2}, ['"é"', '"🙂🙂"'], ['""', '"abc"']),
        (True, ["1", '"x"'], ["x"]),
    ],
)
def test_json_satisfies_its_schema(vocabulary: LLTokenizer, schema: Any, good: list[str], bad: list[str]) -> None:
    """Types, patterns, formats, lengths, recursion; white space is free."""
    matcher = matcher_of(vocabulary, "json", json.dumps(schema))
    found = {text: follows(matcher, vocabulary, text) for text in good + bad}
    assert found == dict.fromkeys(good, True) | dict.fromkeys(bad, False)


def test_spacing(vocabulary: LLTokenizer) -> None:
    """None, or of a pattern."""
    tight = matcher_of(vocabulary, "json", json.dumps(PERSON), is_tight=True)
    assert follows(tight, vocabulary, '{"name":"x"}')
    assert not follows(tight, vocabulary, '{"name": "x"}')
    spaced = matcher_of(vocabulary, "json", json.dumps(PERSON), pattern=" ?")
    assert follows(spaced, vocabulary, '{"name": "x"}')
    assert not follows(spaced, vocabulary, '{"name":  "x"}')


def test_closed_objects(vocabulary: LLTokenizer) -> None:
    """Properties that are not listed are let in by a schema that does not speak of them, unless objects are closed."""
    text, more = json.dumps({"items": PERSON}), '[{"name":"x","more":1}]'
    assert follows(matcher_of(vocabulary, "json", text), vocabulary, more)
    closed = matcher_of(vocabulary, "json", text, closes_objects=True)
    assert not follows(closed, vocabulary, more)
    assert follows(closed, vocabulary, '[{"name":"x"}]')


@pytest.mark.parametrize(
    ("kind", "text", "good", "bad"),
    [
        ("json_object", "true", ["{}", '{"a":[1]}'], ["[]", "1"]),
        ("regex", r"[a-z]+x|\d{2,3}", ["foox", "12", "123"], ["foo", "1"]),
        ("choice", '["no", "no idea", "é\\"\\n"]', ["no", "no idea", 'é"\n'], ["no i", "yes"]),
    ],
)
def test_other_kinds(vocabulary: LLTokenizer, kind: Kind, text: str, good: list[str], bad: list[str]) -> None:
    """A choice may begin with another one."""
    matcher = matcher_of(vocabulary, kind, text)
    found = {text: follows(matcher, vocabulary, text) for text in good + bad}
    assert found == dict.fromkeys(good, True) | dict.fromkeys(bad, False)


@pytest.mark.parametrize(
    ("kind", "text", "fault"),
    [
        ("json", "{", "is no JSON: Expecting"),
        ("json", "[" * 10_000, "is no JSON: "),
        ("json", "[]", "must be a JSON schema, an object or a boolean, got list"),
        ("json", '{"items": 5}', "schema must be an object or boolean"),
        ("json", '{"type": "foo"}', "Invalid type: foo"),
        ("json", '{"not": {}}', 'Unimplemented keys: ."not".'),
        ("json", '{"type": "integer", "minimum": 2, "maximum": 1}', "Unsatisfiable schema"),
        ("json", '{"$ref": "#"}', "no text satisfies it"),
        ("json", '{"$ref": "http://example.com/x"}', "Default retriever does not fetch resources"),
        ("regex", "(", "unclosed group"),
        ("regex", r"(a)\1", "backreferences are not supported"),
        ("regex", "(?=a)b", "look-around"),
    ],
)
def test_faults_are_told(vocabulary: LLTokenizer, kind: Kind, text: str, fault: str) -> None:
    """What the library cannot do it says; nothing is left out in silence."""
    with pytest.raises(FormError, match=fault) as caught:
        matcher_of(vocabulary, kind, text)
    assert len(str(caught.value)) <= 300
