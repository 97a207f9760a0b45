"""Structured output: what the core is asked for, and what a client hears of a form that is wrong."""

import asyncio
from typing import Any

import grpc
import pytest

from core.wire.messages import REFUSED, EngineCoreOutput, FinishReason
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import FakeCore


@pytest.mark.parametrize(
    ("form", "value", "core_name", "core_value"),
    [
        ("json_schema", '{"type": "object"}', "json", '{"type": "object"}'),
        ("regex", "a+", "regex", "a+"),
        ("choice", {"choices": ["a", "b"]}, "choice", ["a", "b"]),
        ("grammar", 'root ::= "a"', "grammar", 'root ::= "a"'),
        ("json_object", True, "json_object", True),
        ("structural_tag", '{"format": {}}', "structural_tag", '{"format": {}}'),
    ],
)
async def test_each_form_reaches_the_core(
    inference: InferenceServiceStub, core: FakeCore, form: str, value: Any, core_name: str, core_value: Any
) -> None:
    """Under the name that vLLM has for it, and no other with it; each of the n sequences has it."""
    request = pb.GenerateRequest(text="hi", sampling_params={form: value, "n": 2, "temperature": 1.0})
    call = inference.Generate(request)
    for added in [await core.receive_add(), await core.receive_add()]:
        asked = added.sampling_params.structured_outputs
        kinds = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
        assert {kind: v for kind in kinds if (v := getattr(asked, kind)) is not None} == {core_name: core_value}
        assert asked.backend == "guidance"
        core.emit_token(added.request_id, ord("a"), FinishReason.STOP)
    assert len((await call).outputs) == 2


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("json_schema", ""),
        ("json_schema", "{"),
        ("json_schema", '"' + "x" * 65_536 + '"'),
        ("regex", " "),
        ("choice", {"choices": []}),
        ("grammar", ""),
        ("json_object", False),
        ("structural_tag", "no JSON"),
    ],
)
async def test_a_fault_that_shows_is_told_while_a_stream_goes_on(
    inference: InferenceServiceStub, core: FakeCore, form: str, value: Any
) -> None:
    """By its field, before the core hears of it."""
    stream = aiter(inference.GenerateStream(pb.GenerateRequest(text="hi")))
    request_id = (await core.receive_add()).request_id
    core.emit_token(request_id, ord("a"))
    assert (await anext(stream)).HasField("started")
    error = await error_of(inference.Generate(pb.GenerateRequest(text="hi", sampling_params={form: value})))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert f"sampling_params.{form}" in error.message
    core.emit_token(request_id, ord("b"), FinishReason.LENGTH)
    events = [event async for event in stream]
    assert "".join(event.delta.text for event in events) == "ab"
    assert events[-1].finished.usage.num_output_tokens == 2


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        ("structured_outputs.json Invalid type: foo", "sampling_params.json_schema: Invalid type: foo"),
        ("structured_outputs.regex unclosed group", "sampling_params.regex: unclosed group"),
        ("something else", "request: the engine refused it: something else"),
    ],
)
async def test_what_the_core_finds_is_told(
    inference: InferenceServiceStub, core: FakeCore, cause: str, message: str
) -> None:
    """By the field as the client calls it."""
    request = pb.GenerateRequest(text="hi", sampling_params={"json_schema": '{"type": "foo"}'})
    call = asyncio.ensure_future(error_of(inference.Generate(request)))
    request_id = (await core.receive_add()).request_id
    refusal = EngineCoreOutput(request_id, [], finish_reason=FinishReason.ERROR, stop_reason=REFUSED + cause)
    core.emit(refusal)
    error = await call
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.message == message
