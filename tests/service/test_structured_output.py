"""A client's form in the core's terms."""

import pytest

from core.wire.sampling_params import MAX_FORM_BYTES, StructuredOutputs, Violation
from service.structured_output import MAX_COPIED_BYTES, field_of, read_structured_output
from sluicegate.v1 import sampling_params_pb2 as pb


def test_free_text() -> None:
    """Without a form there is nothing to follow."""
    violations: list[Violation] = []
    assert read_structured_output(pb.SamplingParams(), 1, violations) is None
    assert not violations


def test_a_form_is_bounded() -> None:
    """In bytes, the largest one included."""
    violations: list[Violation] = []
    asked = read_structured_output(pb.SamplingParams(regex="a" * MAX_FORM_BYTES), 1, violations)
    assert asked == StructuredOutputs(regex="a" * MAX_FORM_BYTES, backend="guidance")
    assert not violations
    read_structured_output(pb.SamplingParams(regex="é" * (MAX_FORM_BYTES // 2 + 1)), 1, violations)
    bound = f"must have at most {MAX_FORM_BYTES} bytes, got {MAX_FORM_BYTES + 2}"
    assert violations == [("sampling_params.regex", bound)]


def test_sequences_are_bounded_by_the_copies_they_get() -> None:
    """A short form may be that of thousands, a long one of some."""
    violations: list[Violation] = []
    read_structured_output(pb.SamplingParams(regex="a+"), 16_384, violations)
    assert not violations
    read_structured_output(pb.SamplingParams(regex="a" * 2**16), 257, violations)
    bound = f"must be at most {MAX_COPIED_BYTES // 2**16} with a regex of 65536 bytes, got 257"
    assert violations == [("sampling_params.n", bound)]


@pytest.mark.parametrize(
    ("core_field", "field"),
    [
        ("structured_outputs.json", "sampling_params.json_schema"),
        ("structured_outputs.choice", "sampling_params.choice"),
        ("structured_outputs.other", None),
        ("temperature", None),
    ],
)
def test_fields_are_named_as_the_client_knows_them(core_field: str, field: str | None) -> None:
    """Those of forms."""
    assert field_of(core_field) == field
