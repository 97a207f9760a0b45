"""Whatever the schema and the tokens drawn, a text that may end satisfies the schema."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from tests.core.structured_output.following import matcher_of

MAX_TOKENS = 300
NAMES = st.sampled_from(["a", "größe", "x y", '"quoted"'])
LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": "integer"}, {"type": "number"}]),
    st.integers(-20, 20).map(lambda low: {"type": "integer", "minimum": low, "maximum": low + 30}),
    st.integers(0, 3).map(lambda low: {"type": "string", "minLength": low, "maxLength": low + 4}),
    st.lists(st.sampled_from(["foo", "é", 1, None, True]), min_size=1, unique_by=repr).map(lambda v: {"enum": v}),
)


def arrays(items: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda part, low: {"type": "array", "items": part, "minItems": low, "maxItems": low + 2},
        items,
        st.integers(0, 2),
    )


def objects(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """The first property is required; others are integers, if there may be any."""
    return st.builds(
        lambda properties, others: {
            "type": "object",
            "properties": properties,
            "required": [*properties][:1],
            "additionalProperties": others,
        },
        st.dictionaries(NAMES, parts, max_size=3),
        st.sampled_from([False, {"type": "integer"}]),
    )


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        arrays(inner) | objects(inner) | st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts})
    ),
    max_leaves=6,
)


def satisfies(value: Any, schema: dict[str, Any]) -> bool:
    """As far as the schemas above go."""
    if "anyOf" in schema:
        return any(satisfies(value, part) for part in schema["anyOf"])
    if "enum" in schema:
        return any(value == allowed and type(value) is type(allowed) for allowed in schema["enum"])
    return _CHECKS[schema["type"]](value, schema)


def _is_object(value: Any, schema: dict[str, Any]) -> bool:
    if not isinstance(value, dict) or not value.keys() >= {*schema["required"]}:
        return False
    own, others = schema["properties"], schema["additionalProperties"]
    may_have_others = others is not False or value.keys() <= own.keys()
    return may_have_others and all(satisfies(part, own.get(name, others)) for name, part in value.items())


def _is_array(value: Any, schema: dict[str, Any]) -> bool:
    return (
        isinstance(value, list)
        and schema["minItems"] <= len(value) <= schema["maxItems"]
        and all(satisfies(part, schema["items"]) for part in value)
    )


def _is_integer(value: Any, schema: dict[str, Any]) -> bool:
    return type(value) is int and schema.get("minimum", value) <= value <= schema.get("maximum", value)


def _is_string(value: Any, schema: dict[str, Any]) -> bool:
    return isinstance(value, str) and schema["minLength"] <= len(value) <= schema["maxLength"]


_CHECKS = {
    "boolean": lambda value, _: isinstance(value, bool),
    "null": lambda value, _: value is None,
    "integer": _is_integer,
    "number": lambda value, _: isinstance(value, int | float) and not isinstance(value, bool),
    "string": _is_string,
    "array": _is_array,
    "object": _is_object,
}


def draw_text(matcher: LLMatcher, vocabulary: LLTokenizer, data: st.DataObject) -> bytes | None:
    """Of random tokens, to a place where it may end; None if that is too far."""
    random = data.draw(st.randoms(use_true_random=False))
    token_ids: list[int] = []
    hurried = set(vocabulary.greedy_tokenize('"}]0'))
    while len(token_ids) < MAX_TOKENS:
        if matcher.is_accepting() and (matcher.is_stopped() or random.random() < 0.3):
            return vocabulary.decode_bytes(token_ids)
        bits = int.from_bytes(matcher.compute_bitmask(), "little")
        allowed = [i for i in range(vocabulary.vocab_size) if bits >> i & 1 and not vocabulary.is_special_token(i)]
        soon = [token_id for token_id in allowed if token_id in hurried]
        token_ids.append(random.choice(soon if soon and random.random() < 0.5 else allowed))
        assert matcher.consume_token(token_ids[-1])
    return None


@settings(max_examples=60, deadline=None)
@given(SCHEMAS, st.booleans(), st.data())
def test_any_output_satisfies_its_schema(
    vocabulary: LLTokenizer, schema: dict[str, Any], is_tight: bool, data: st.DataObject
) -> None:
    """It is JSON, in UTF-8, and of the schema."""
    text = draw_text(matcher_of(vocabulary, "json", json.dumps(schema), is_tight=is_tight), vocabulary, data)
    if text is not None:
        assert satisfies(json.loads(text.decode()), schema), text
