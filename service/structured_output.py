"""The form that a client wants the output to have, in the core's terms."""

import json
from collections.abc import Iterator

from core.wire.sampling_params import MAX_FORM_BYTES, StructuredOutputs, Violation
from service.errors import shown
from sluicegate.v1 import sampling_params_pb2 as pb

MAX_COPIED_BYTES = 2**24
"""Of a form, each of a request's n sequences counted: every sequence gets its own copy."""
_BACKEND = "guidance"
"""Whose grammars these are, to vLLM's cores, which are told by their front end."""
_KINDS = [field.name for field in pb.SamplingParams.DESCRIPTOR.oneofs_by_name["structured_output"].fields]
_CORE_NAMES = {kind: kind for kind in _KINDS} | {"json_schema": "json"}
_FIELDS = {f"structured_outputs.{name}": f"sampling_params.{kind}" for kind, name in _CORE_NAMES.items()}


def read_structured_output(given: pb.SamplingParams, n: int, violations: list[Violation]) -> StructuredOutputs | None:
    """What the core gets; None for free text. What shows to be wrong without compiling it goes to ``violations``."""
    kind = given.WhichOneof("structured_output")
    if kind is None:
        return None
    found = list(_violations(given, kind, n))
    violations += [Violation(f"sampling_params.{field}", text) for field, text in found]
    if found:
        return None
    asked = StructuredOutputs(backend=_BACKEND)
    setattr(asked, _CORE_NAMES[kind], list(given.choice.choices) if kind == "choice" else getattr(given, kind))
    return asked


def field_of(core_field: str) -> str | None:
    """The field of a request that the core calls ``structured_outputs.…``; None if that is none."""
    return _FIELDS.get(core_field)


def _violations(given: pb.SamplingParams, kind: str, n: int) -> Iterator[Violation]:
    size = given.choice.ByteSize() if kind == "choice" else len(str(getattr(given, kind)).encode())
    if size > MAX_FORM_BYTES:
        yield Violation(kind, f"must have at most {MAX_FORM_BYTES} bytes, got {size}")
    elif (fault := _fault_of(given, kind)) is not None:
        yield Violation(kind, fault)
    if n > 1 and n * size > MAX_COPIED_BYTES:
        yield Violation("n", f"must be at most {MAX_COPIED_BYTES // size} with a {kind} of {size} bytes, got {n}")


def _fault_of(given: pb.SamplingParams, kind: str) -> str | None:
    value = getattr(given, kind)
    match kind:
        case "json_schema" | "structural_tag" if not isinstance(_parsed(value), dict):
            return f"must be a JSON object, got {shown(value)}"
        case "regex" | "grammar" if not value.strip():
            return "must not be empty"
        case "choice" if not (value.choices and all(value.choices)):
            return "must have at least one string, none of them empty"
        case "json_object" if not value:
            return "must be true or unset, got false"
    return None


def _parsed(text: str) -> object:
    """None for what is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
