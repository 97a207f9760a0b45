"""A form as llguidance takes it: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md."""

import json
from typing import Any

from llguidance import LLMatcher

from core.structured_output.ebnf import ebnf_to_lark
from core.structured_output.form import Form, FormError, Spacing
from core.structured_output.structural_tag import boolean_schema, tag_to_lark

_ANY_OBJECT = '{"type": "object"}'


def write_grammar(form: Form) -> str:
    """Raises FormError for what shows while it is written; llguidance finds the rest when it compiles it."""
    match form.kind:
        case "json":
            return _json_grammar(_read_json(form.text), form)
        case "json_object":
            return _json_grammar(json.loads(_ANY_OBJECT), form)
        case "regex":
            return LLMatcher.grammar_from_regex(form.text)
        case "choice":
            return LLMatcher.grammar_from_lark(_choice(json.loads(form.text)))
        case "grammar":
            return LLMatcher.grammar_from_lark(ebnf_to_lark(form.text))
        case "structural_tag":
            return LLMatcher.grammar_from_lark(tag_to_lark(_read_json(form.text)))


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormError(f"is no JSON: {error}") from error


def _json_grammar(schema: Any, form: Form) -> str:
    if not isinstance(schema, dict | bool):
        raise FormError(f"must be a JSON schema, an object or a boolean, got {type(schema).__name__}")
    if isinstance(schema, bool):
        schema = boolean_schema(schema)
    if form.closes_objects:
        schema = _closed(schema)
    return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=_options(form.spacing))


def _options(spacing: Spacing) -> Any:
    options: dict[str, Any] = {"whitespace_flexible": not spacing.is_tight}
    if spacing.pattern is not None:
        options["whitespace_pattern"] = spacing.pattern
    return options


def _closed(schema: Any) -> Any:
    """Every object in ``schema`` that lists properties and says nothing of others allows no others."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(part) for key, part in schema.items()}
    if isinstance(schema.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


def _choice(choices: list[str]) -> str:
    """One terminal: as alternatives of a rule, one that another begins with would end too late."""
    return "start: CHOICE\nCHOICE: " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
