"""Reading the tensors of a request."""

from collections.abc import Callable

import pytest

from core.wire.sampling_params import Violation
from service.servicers.kserve.input_tensors import InputTensors
from service.servicers.kserve.tensor_specs import SAMPLING_PARAMETERS, STREAM, TEXT_INPUT
from sluicegate.third_party.inference import grpc_service_pb2 as pb
from tests.service.servicers.kserve.requests import add_tensor, infer_request, packed


def read(request: pb.ModelInferRequest) -> tuple[InputTensors, list[Violation]]:
    violations: list[Violation] = []
    return InputTensors(request, violations), violations


def test_raw_contents() -> None:
    """Text is UTF-8, flags are a byte; what is not there is empty or None."""
    tensors, violations = read(infer_request("žluťoučký", stream=True))
    assert (tensors.text(TEXT_INPUT), tensors.flag(STREAM)) == ("žluťoučký", True)
    assert (tensors.text(SAMPLING_PARAMETERS), SAMPLING_PARAMETERS in tensors, TEXT_INPUT in tensors) == (
        "",
        False,
        True,
    )
    assert violations == []
    assert read(infer_request(stream=False))[0].flag(STREAM) is False
    assert read(infer_request())[0].flag(STREAM) is None


def test_contents() -> None:
    """As clients without raw data send it."""
    request = pb.ModelInferRequest()
    text = request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
    text.contents.bytes_contents.append(b"hi")
    request.inputs.add(name="stream", datatype="BOOL", shape=[1]).contents.bool_contents.append(True)
    tensors, violations = read(request)
    assert (tensors.text(TEXT_INPUT), tensors.flag(STREAM), violations) == ("hi", True, [])


def _with(name: str, datatype: str, raw: bytes, shape: tuple[int, ...] = (1,)) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest()
    add_tensor(request, name, datatype, raw, shape)
    return request


def _changed(change: Callable[[pb.ModelInferRequest], object]) -> pb.ModelInferRequest:
    request = infer_request()
    change(request)
    return request


@pytest.mark.parametrize(
    ("request_", "field", "text"),
    [
        (_with("text_input", "FP32", bytes(4)), "text_input", "must have the datatype BYTES, got 'FP32'"),
        (_with("text_input", "BYTES", packed("x"), (1, 1)), "text_input", "must have the shape [1], got [1, 1]"),
        (_with("text_input", "BYTES", packed("x"), (-1,)), "text_input", "must have the shape [1], got [-1]"),
        (_with("text_input", "BYTES", packed("x"), ()), "text_input", "must have the shape [1], got []"),
        (_with("text_input", "BYTES", b""), "text_input", "must begin with the 4 bytes of its length, got 0 bytes"),
        (_with("text_input", "BYTES", b"\1\0"), "text_input", "must begin with the 4 bytes of its length, got 2"),
        (_with("text_input", "BYTES", packed("xyz")[:-1]), "text_input", "must have the 3 bytes that it begins"),
        (_with("text_input", "BYTES", b"\xff\xff\xff\xffx"), "text_input", "must have the 4294967295 bytes"),
        (_with("text_input", "BYTES", packed("x") * 2), "text_input", "must have the 1 bytes that it begins"),
        (_with("text_input", "BYTES", packed(b"ab\xff")), "text_input", "must be UTF-8: invalid start byte at byte 2"),
        (_with("stream", "BOOL", b""), "stream", "must be one byte, 0 or 1, got 0 bytes"),
        (_with("stream", "BOOL", b"\1\1"), "stream", "must be one byte, 0 or 1, got 2 bytes"),
        (_with("stream", "BOOL", b"\2"), "stream", "must be one byte, 0 or 1, got the byte 2"),
        (_with("image", "BYTES", packed("x")), "image", "must be left out: this server takes text only"),
        (_with("embedding_request", "BYTES", packed("{}")), "embedding_request", "generates text only"),
        (_with("nonsense", "BYTES", packed("x")), "inputs", "no tensor 'nonsense' is known; there are text_input,"),
        (_changed(lambda request: request.raw_input_contents.append(b"")), "raw_input_contents", "got 2"),
        (_changed(lambda request: request.inputs.add(name="stream")), "raw_input_contents", "each of the 2 inputs"),
        (_changed(lambda request: add_tensor(request, "text_input", "BYTES", packed("y"))), "text_input", "twice"),
        (_changed(lambda r: r.inputs[0].contents.bytes_contents.append(b"x")), "text_input", "got both"),
        (
            _changed(lambda r: setattr(r.inputs[0].parameters["shared_memory_region"], "string_param", "x")),
            "text_input",
            "reads no shared memory",
        ),
        (
            _changed(lambda request: request.ClearField("raw_input_contents")),
            "text_input",
            "must have one element in bytes_contents, got 0",
        ),
    ],
)
def test_bad_tensors(request_: pb.ModelInferRequest, field: str, text: str) -> None:
    """The tensor is named, with what it should be and what it is."""
    tensors, violations = read(request_)
    assert tensors.text(TEXT_INPUT) in ("", "hi", "x")
    assert [violation.field for violation in violations] == [field]
    assert text in violations[0].description


def test_every_bad_tensor_is_named() -> None:
    """At once."""
    request = infer_request(b"\xff", stream=True)
    request.raw_input_contents[1] = b"\7"
    tensors, violations = read(request)
    tensors.text(TEXT_INPUT)
    assert [violation.field for violation in violations] == ["stream", "text_input"]
