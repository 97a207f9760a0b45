"""service.errors: every error has its status, its reason and its details."""

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo

from core.wire.sampling_params import Violation
from service import errors

_VIOLATIONS = [Violation("sampling_params.top_p", "must be in (0, 1], got 3"), Violation("text", "must not be empty")]


@pytest.mark.parametrize(
    ("error", "code", "details"),
    [
        (errors.InvalidRequest(_VIOLATIONS), grpc.StatusCode.INVALID_ARGUMENT, [ErrorInfo, BadRequest]),
        (errors.NotFound("x"), grpc.StatusCode.NOT_FOUND, [ErrorInfo]),
        (errors.AlreadyExists("x"), grpc.StatusCode.ALREADY_EXISTS, [ErrorInfo]),
        (errors.Unimplemented("x"), grpc.StatusCode.UNIMPLEMENTED, [ErrorInfo]),
        (errors.ResourceExhausted("x"), grpc.StatusCode.RESOURCE_EXHAUSTED, [ErrorInfo]),
        (errors.QueueFull("x"), grpc.StatusCode.RESOURCE_EXHAUSTED, [ErrorInfo, RetryInfo]),
        (errors.Unavailable("x"), grpc.StatusCode.UNAVAILABLE, [ErrorInfo, RetryInfo]),
        (errors.Internal(), grpc.StatusCode.INTERNAL, [ErrorInfo]),
    ],
)
def test_status_carries_code_message_and_details(
    error: errors.ServiceError, code: grpc.StatusCode, details: list[type[Message]]
) -> None:
    """ErrorInfo first and always; its reason is a constant for programs."""
    status = errors.to_rpc_status(error)
    assert (status.code, status.message) == (code.value[0], str(error))
    assert [packed.Is(kind.DESCRIPTOR) for packed, kind in zip(status.details, details, strict=True)]
    info = ErrorInfo()
    status.details[0].Unpack(info)
    assert info.domain == "sluicegate"
    assert info.reason == error.reason
    assert info.reason.replace("_", "").isupper()


def test_invalid_request_names_every_field() -> None:
    """In the message for people, in BadRequest for programs."""
    error = errors.InvalidRequest(_VIOLATIONS)
    assert error.message == "sampling_params.top_p: must be in (0, 1], got 3; text: must not be empty"
    bad_request = error.details()[1]
    assert isinstance(bad_request, BadRequest)
    assert [(v.field, v.description) for v in bad_request.field_violations] == _VIOLATIONS


def test_trailer_stays_small_however_much_is_wrong() -> None:
    """A peer limits trailers to 8 KiB: many or long violations are cut, and said to be."""
    error = errors.InvalidRequest([Violation(f"logit_bias[{i}]", "x" * 10_000) for i in range(1000)])
    assert len(error.message) + errors.to_rpc_status(error).ByteSize() * 4 / 3 < 7000
    assert len(error.violations) > 8
    assert error.message.endswith(f"; and {1000 - len(error.violations)} more")


def test_reason_and_metadata_can_be_told() -> None:
    """What a program needs to tell two errors of one kind apart."""
    error = errors.Unimplemented("no regex", reason="FIELD_NOT_SUPPORTED", field="regex")
    assert error.details() == [
        ErrorInfo(reason="FIELD_NOT_SUPPORTED", domain="sluicegate", metadata={"field": "regex"})
    ]


def test_retry_info_holds_the_delay() -> None:
    """In seconds, to the millisecond."""
    retry_info = errors.QueueFull("full", retry_after_s=1.25).details()[1]
    assert isinstance(retry_info, RetryInfo)
    assert (retry_info.retry_delay.seconds, retry_info.retry_delay.nanos) == (1, 250_000_000)


def test_unavailable_is_told_with_a_delay_of_ones_own() -> None:
    """One error ends many streams: their clients come again over two seconds, not in the same moment."""
    error = errors.Unavailable("gone", retry_after_s=2)
    retries = [detail for _ in range(50) for detail in error.details() if isinstance(detail, RetryInfo)]
    delays = {retry.retry_delay.ToTimedelta().total_seconds() for retry in retries}
    assert len(delays) > 40
    assert 2 <= min(delays) <= max(delays) <= 4


def test_internal_error_has_an_id_and_tells_nothing_else() -> None:
    """The id stands in the message and in the metadata, and is new each time."""
    one, other = errors.Internal(), errors.Internal("the core failed")
    assert one.message == f"internal error (error id {one.error_id})"
    assert other.metadata == {"error_id": other.error_id}
    assert one.error_id != other.error_id


def test_values_are_shown_quoted_and_short() -> None:
    """However long the client made them."""
    assert errors.shown("a\nb") == "'a\\nb'"
    assert len(errors.shown("x" * 10**6)) <= 64
