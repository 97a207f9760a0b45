"""Structural tags as a Lark grammar for llguidance: text in which some parts, such as calls of tools, have a form.

Both spellings that vLLM's clients use:

    {"structures": [{"begin": "<f=a>", "schema": {…}, "end": "</f>"}], "triggers": ["<f="]}
    {"format": {"type": "triggered_tags", "triggers": ["<f="], "tags": [{"begin": …, "content": {…}, "end": …}]}}

The second nests formats: https://xgrammar.mlc.ai/docs/tutorials/structural_tag.html.
"""

import json
from collections.abc import Callable
from typing import Any

from llguidance import regex_to_lark

from core.structured_output.ebnf import ebnf_to_lark
from core.structured_output.form import FormError

_ANY_TEXT = "/(?s:.*)/"
_MAX_REPETITIONS = 10_000


def tag_to_lark(tag: Any) -> str:
    """Raises FormError for what is wrong with ``tag``, or not supported."""
    if not isinstance(tag, dict) or not ("structures" in tag or "format" in tag):
        raise FormError("must be a JSON object with format, or with structures and triggers")
    form = tag["format"] if "format" in tag else _of_structures(tag)
    writer = _Writer()
    start = writer.write(form)
    return "\n".join([f"start: {start}", *writer.rules])


def _of_structures(tag: dict[str, Any]) -> dict[str, Any]:
    tags = [
        {
            "begin": _field(structure, "begin", str),
            "content": {"type": "json_schema", "json_schema": structure.get("schema", {})},
            "end": _field(structure, "end", str),
        }
        for structure in _field(tag, "structures", list)
    ]
    return {"type": "triggered_tags", "triggers": _field(tag, "triggers", list), "tags": tags}


class _Writer:
    """Formats become expressions; lazy text, which ends with the first occurrence of a string, needs ``rules``."""

    def __init__(self) -> None:
        self.rules: list[str] = []

    def write(self, form: Any) -> str:
        kind = _field(form, "type", str)
        if kind not in _WRITERS:
            raise FormError(f"the format {kind[:50]!r} is not supported (supported: {', '.join(_WRITERS)})")
        expression = _WRITERS[kind](self, form)
        return self._as_one_lexeme(expression) if kind in _NESTING and _is_regular(form) else expression

    def const_string(self, form: Any) -> str:
        return _literal(_field(form, "value", str))

    def json_schema(self, form: Any) -> str:
        if form.get("style", "json") != "json":
            raise FormError(f"json_schema: the style {str(form['style'])[:50]!r} is not supported")
        schema = form.get("json_schema")
        if not isinstance(schema, dict | bool):
            raise FormError("json_schema must be an object or a boolean")
        return f"%json {json.dumps(schema if isinstance(schema, dict) else boolean_schema(schema))}"

    def regex(self, form: Any) -> str:
        return f"/{regex_to_lark(_field(form, 'pattern', str), '')}/"

    def grammar(self, form: Any) -> str:
        return f"%lark {{\n{ebnf_to_lark(_field(form, 'grammar', str))}\n}}"

    def any_text(self, form: Any) -> str:
        if form.get("excludes"):
            raise FormError("any_text: excludes is not supported")
        return _ANY_TEXT

    def sequence(self, form: Any) -> str:
        return " ".join(f"({self.write(element)})" for element in _elements(form, "elements")) or '""'

    def either(self, form: Any) -> str:
        return " | ".join(f"({self.write(element)})" for element in _elements(form, "elements"))

    def optional(self, form: Any) -> str:
        return f"({self.write(form.get('content'))})?"

    def plus(self, form: Any) -> str:
        return f"({self.write(form.get('content'))})+"

    def star(self, form: Any) -> str:
        return f"({self.write(form.get('content'))})*"

    def repeat(self, form: Any) -> str:
        least, most = form.get("min", 0), form.get("max", -1)
        if not all(type(bound) is int and -1 <= bound <= _MAX_REPETITIONS for bound in (least, most)):
            raise FormError(f"repeat: min and max must be whole numbers up to {_MAX_REPETITIONS}, -1 = no bound")
        return f"({self.write(form.get('content'))}){{{max(least, 0)},{most if most >= 0 else ''}}}"

    def tag(self, form: Any) -> str:
        return f"{_literal(_field(form, 'begin', str))} {self._inside(form)}"

    def triggered_tags(self, form: Any) -> str:
        """Text, in which each trigger begins one of its tags."""
        triggers = [_checked(trigger, "triggers") for trigger in _elements(form, "triggers")]
        tags = _elements(form, "tags")
        part = "(" + " | ".join(self._after(trigger, tags) for trigger in triggers) + ")"
        unmatched = next((tag for tag in tags if _trigger_of(tag, triggers) is None), None)
        if unmatched is not None:
            raise FormError(f"no trigger begins the tag {_field(unmatched, 'begin', str)[:50]!r}")
        at_least_one, is_last = bool(form.get("at_least_one")), bool(form.get("stop_after_first"))
        if is_last:
            return part if at_least_one else f"({part} | {_ANY_TEXT})"
        return f"{part}{'+' if at_least_one else '*'} {_ANY_TEXT}"

    def tags_with_separator(self, form: Any) -> str:
        one = "(" + " | ".join(self.tag(tag) for tag in _elements(form, "tags")) + ")"
        more = "" if form.get("stop_after_first") else f" ({_literal(_field(form, 'separator', str))} {one})*"
        return f"({one}{more})" + ("" if form.get("at_least_one") else "?")

    def _after(self, trigger: str, tags: list[Any]) -> str:
        """Text up to ``trigger``, and what may follow that."""
        mine = [tag for tag in tags if _trigger_of(tag, [trigger]) is not None]
        if not mine:
            raise FormError(f"no tag begins with the trigger {trigger[:50]!r}")
        rests = [f"{_literal(_field(tag, 'begin', str)[len(trigger) :])} {self._inside(tag)}" for tag in mine]
        return f"{self._text_until(trigger)} ({' | '.join(rests)})"

    def _inside(self, tag: Any) -> str:
        """Content and end of ``tag``."""
        ends = tag.get("end")
        ends = [ends] if isinstance(ends, str) else _elements(tag, "end")
        content = tag.get("content")
        if isinstance(content, dict) and content.get("type") == "any_text":
            self.any_text(content)
            return "(" + " | ".join(self._text_until(_checked(end, "end")) for end in ends) + ")"
        expression = f"({self.write(content)}) ({' | '.join(_literal(_checked(end, 'end')) for end in ends)})"
        return self._as_one_lexeme(expression) if _is_regular(content) else expression

    def _as_one_lexeme(self, expression: str) -> str:
        """llguidance takes the longest lexeme first: of two in a row, the first may leave nothing for the second."""
        name = f"REGULAR{len(self.rules)}"
        self.rules.append(f"{name}: {expression}")
        return name

    def _text_until(self, end: str) -> str:
        if not end:
            return _ANY_TEXT
        name = f"text{len(self.rules)}"
        self.rules.append(f"{name}[lazy]: {_ANY_TEXT} {_literal(end)}")
        return name


_WRITERS: dict[str, Callable[[_Writer, Any], str]] = {
    "const_string": _Writer.const_string,
    "json_schema": _Writer.json_schema,
    "regex": _Writer.regex,
    "grammar": _Writer.grammar,
    "any_text": _Writer.any_text,
    "sequence": _Writer.sequence,
    "or": _Writer.either,
    "optional": _Writer.optional,
    "plus": _Writer.plus,
    "star": _Writer.star,
    "repeat": _Writer.repeat,
    "tag": _Writer.tag,
    "triggered_tags": _Writer.triggered_tags,
    "tags_with_separator": _Writer.tags_with_separator,
}


_NESTING = ("sequence", "or", "optional", "plus", "star", "repeat")


def _is_regular(form: Any) -> bool:
    """Whether a regular expression could say the same."""
    if not isinstance(form, dict):
        return False
    kind = form.get("type")
    parts = form.get("elements") if kind in ("sequence", "or") else [form.get("content")]
    return kind in ("const_string", "regex", "any_text") or (
        kind in _NESTING and isinstance(parts, list) and all(map(_is_regular, parts))
    )


def _field(form: Any, name: str, kind: type) -> Any:
    if not isinstance(form, dict):
        raise FormError(f"expected an object with {name}, got {type(form).__name__}")
    if not isinstance(form.get(name), kind):
        raise FormError(f"{name} must be given and be a {kind.__name__}")
    return form[name]


def _elements(form: Any, name: str) -> list[Any]:
    elements: list[Any] = _field(form, name, list)
    if not elements:
        raise FormError(f"{name} must not be empty")
    return elements


def _checked(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise FormError(f"{name} must be strings, got {type(value).__name__}")
    return value


def _trigger_of(tag: Any, triggers: list[str]) -> str | None:
    begin = _field(tag, "begin", str)
    return next((trigger for trigger in triggers if begin.startswith(trigger)), None)


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def boolean_schema(allows: bool) -> dict[str, Any]:
    """Of anything, or of nothing, which llguidance takes from an object alone."""
    return {} if allows else {"enum": []}
