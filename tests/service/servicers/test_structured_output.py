"""Structured output, which is not built: every form of it is refused, and disturbs nobody."""

from typing import Any

import grpc
import pytest

from core.wire.messages import FinishReason
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import FakeCore

NOT_BUILT, BROKEN = grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("form", "value", "code"),
    [
        ("json_schema", '{"type": "object"}', NOT_BUILT),
        ("json_schema", '{"items": 5}', NOT_BUILT),
        ("json_schema", "", BROKEN),
        ("json_schema", "{", BROKEN),
        ("regex", "a+", NOT_BUILT),
        ("regex", "(", NOT_BUILT),
        ("choice", {"choices": ["a", "b"]}, NOT_BUILT),
        ("choice", {"choices": []}, BROKEN),
        ("grammar", 'root ::= "a"', NOT_BUILT),
        ("grammar", "", BROKEN),
        ("json_object", True, NOT_BUILT),
        ("json_object", False, BROKEN),
        ("structural_tag", "{}", NOT_BUILT),
        ("structural_tag", "no JSON", BROKEN),
    ],
)
async def test_it_is_refused_while_a_stream_goes_on(
    inference: InferenceServiceStub, core: FakeCore, form: str, value: Any, code: grpc.StatusCode
) -> None:
    """By its name, good or bad, before the core hears of it."""
    stream = aiter(inference.GenerateStream(pb.GenerateRequest(text="hi")))
    request_id = (await core.receive_add()).request_id
    core.emit_token(request_id, ord("a"))
    assert (await anext(stream)).HasField("started")
    error = await error_of(inference.Generate(pb.GenerateRequest(text="hi", sampling_params={form: value})))
    assert error.code is code
    assert form in error.message
    core.emit_token(request_id, ord("b"), FinishReason.LENGTH)
    events = [event async for event in stream]
    assert "".join(event.delta.text for event in events) == "ab"
    assert events[-1].finished.usage.num_output_tokens == 2
