"""Structural tags: text in which tags have a form."""

import json
from typing import Any

import pytest
from llguidance import LLTokenizer

from core.structured_output.form import FormError
from tests.core.structured_output.following import follows, matcher_of

INTEGER = {"type": "json_schema", "json_schema": {"type": "integer"}}
CONST = {"type": "const_string", "value": "foo"}
TAGS = [
    {"begin": "<f=a>", "content": INTEGER, "end": "</f>"},
    {"begin": "<f=b>", "content": {"type": "any_text"}, "end": ["</f>", "</g>"]},
]
TRIGGERED = {"type": "triggered_tags", "triggers": ["<f="], "tags": TAGS}


def check(vocabulary: LLTokenizer, tag: Any, good: list[str], bad: list[str]) -> None:
    matcher = matcher_of(vocabulary, "structural_tag", json.dumps(tag))
    found = {text: follows(matcher, vocabulary, text) for text in good + bad}
    assert found == dict.fromkeys(good, True) | dict.fromkeys(bad, False)


def test_structures_and_triggers(vocabulary: LLTokenizer) -> None:
    """The older spelling: text is free until a trigger begins a tag, and after it."""
    structures = [{"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"}]
    tag = {"type": "structural_tag", "structures": structures, "triggers": ["<f="]}
    good = ["", "free < text", "see <f=a>12</f> there", "<f=a>1</f><f=a>2</f>"]
    check(vocabulary, tag, good, ["<f=b>1</f>", "<f=a>x</f>", "see <f=a>12"])


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        (CONST, ["foo"], ["", "bar", "foox"]),
        (INTEGER, ["12"], ["x"]),
        ({"type": "regex", "pattern": r"[a-c]+/\d"}, ["ab/5"], ["ab5"]),
        ({"type": "grammar", "grammar": 'root ::= "(" root ")" | "x"'}, ["((x))"], ["(x"]),
        ({"type": "any_text"}, ["", "what\never"], []),
        ({"type": "sequence", "elements": [CONST, INTEGER]}, ["foo7"], ["foo", "7"]),
        ({"type": "or", "elements": [CONST, INTEGER]}, ["foo", "7"], ["foo7"]),
        ({"type": "optional", "content": CONST}, ["", "foo"], ["foofoo"]),
        ({"type": "star", "content": CONST}, ["", "foofoo"], ["fo"]),
        ({"type": "plus", "content": CONST}, ["foo", "foofoo"], [""]),
        ({"type": "repeat", "content": CONST, "min": 1, "max": 2}, ["foo", "foofoo"], ["", "foofoofoo"]),
        (
            {"type": "sequence", "elements": [{"type": "regex", "pattern": "[a-z]+"}, CONST]},
            ["xfoo", "foofoo"],
            ["foo"],
        ),
        (
            {"type": "tag", "begin": "<", "content": {"type": "regex", "pattern": ".*"}, "end": "/>"},
            ["</>", "<a/>b/>"],
            ["<a/", "<"],
        ),
        ({"type": "tag", **TAGS[1]}, ["<f=b>any</f>", "<f=b>x</g>"], ["any", "<f=b>x</f>y"]),
        (TRIGGERED, ["text", "x <f=b>y</g> <f=a>1</f>z"], ["<f=c>"]),
        ({**TRIGGERED, "at_least_one": True}, ["x<f=a>1</f>y"], ["x", ""]),
        ({**TRIGGERED, "stop_after_first": True}, ["x<f=a>1</f>", "free"], ["<f=a>1</f>x"]),
        (
            {"type": "tags_with_separator", "tags": TAGS, "separator": ","},
            ["", "<f=a>1</f>", "<f=a>1</f>,<f=b>x</f>"],
            ["x", "<f=a>1</f>,"],
        ),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_formats(vocabulary: LLTokenizer, form: Any, good: list[str], bad: list[str]) -> None:
    """The newer spelling nests them."""
    check(vocabulary, {"type": "structural_tag", "format": form}, good, bad)


@pytest.mark.parametrize(
    ("tag", "fault"),
    [
        ([], "must be a JSON object with format, or with structures and triggers"),
        ({"structures": [{"begin": 1}], "triggers": ["<"]}, "begin must be given and be a str"),
        ({"structures": [{"begin": "<a>", "end": ""}], "triggers": []}, "triggers must not be empty"),
        ({"structures": [{"begin": "<a>", "end": ""}], "triggers": ["x"]}, "no tag begins with the trigger 'x'"),
        ({"format": {"type": "qwen_xml_parameter"}}, "the format 'qwen_xml_parameter' is not supported"),
        ({"format": {"type": "sequence", "elements": []}}, "elements must not be empty"),
        ({"format": {"type": "json_schema", "json_schema": 5}}, "json_schema must be an object or a boolean"),
        ({"format": {"type": "repeat", "content": CONST, "max": 10**9}}, "repeat: min and max must be whole numbers"),
        ({"format": "x"}, "expected an object with type, got str"),
    ],
)
def test_faults_are_told(vocabulary: LLTokenizer, tag: Any, fault: str) -> None:
    """What is missing, of the wrong type, or not supported."""
    with pytest.raises(FormError, match=fault):
        matcher_of(vocabulary, "structural_tag", json.dumps(tag))
