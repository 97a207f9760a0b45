"""What a request's output must look like, as one value: the key of its compiled grammar."""

import json
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from core.wire.sampling_params import MAX_FORM_BYTES, StructuredOutputs, Violation

FIELD = "structured_outputs"

Kind = Literal["json", "regex", "choice", "grammar", "json_object", "structural_tag"]
_KINDS: tuple[Kind, ...] = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


class FormError(ValueError):
    """A form that cannot be followed; the text says what is wrong with it."""


class Spacing(NamedTuple):
    """Of JSON. ``pattern``: what may stand between two tokens; None: any white space, or none if ``is_tight``."""

    is_tight: bool = False
    pattern: str | None = None


class Form(msgspec.Struct, frozen=True):
    """``text``: the schema or tag as JSON, the choices as a JSON list, else as it came.

    ``closes_objects``: an object has the properties that its schema lists, and no others.
    """

    kind: Kind
    text: str
    spacing: Spacing = Spacing()
    closes_objects: bool = False

    @classmethod
    def of(cls, asked: StructuredOutputs) -> "Form":
        """For parameters that ``find_form_violations`` has found nothing in."""
        (kind,) = _kinds_of(asked)
        spacing = Spacing(asked.disable_any_whitespace, asked.whitespace_pattern)
        return cls(kind, _text_of(asked, kind), spacing, asked.disable_additional_properties)


def find_form_violations(asked: StructuredOutputs) -> Iterator[Violation]:
    """What shows without compiling it."""
    kinds = _kinds_of(asked)
    if len(kinds) != 1:
        got = ", ".join(kinds) or "none"
        yield Violation(FIELD, f"must have exactly one of {', '.join(_KINDS)}, got {got}")
        return
    field = f"{FIELD}.{kinds[0]}"
    try:
        text = _text_of(asked, kinds[0])
    except (TypeError, RecursionError) as error:  # A map on the wire may hold what JSON does not, and be deep.
        yield Violation(field, f"must be JSON: {error}")
        return
    if (size := _size_of(text) + _size_of(asked.whitespace_pattern or "")) > MAX_FORM_BYTES:
        yield Violation(field, f"must have at most {MAX_FORM_BYTES} bytes, got {size}")
    if not text.strip():
        yield Violation(field, "must not be blank")
    if asked.json_object is False:
        yield Violation(field, "must be true, got false")
    if asked.choice is not None and not (asked.choice and all(asked.choice)):
        yield Violation(field, "must have at least one string, none of them empty")


def _kinds_of(asked: StructuredOutputs) -> list[Kind]:
    return [kind for kind in _KINDS if getattr(asked, kind) is not None]


def _text_of(asked: StructuredOutputs, kind: Kind) -> str:
    value = getattr(asked, kind)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _size_of(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))
