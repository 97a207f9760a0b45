"""Requests as clients of Triton make them, and what tests read of responses."""

import json
import struct
from typing import Any

from sluicegate.third_party.inference import grpc_service_pb2 as pb


def packed(text: str | bytes) -> bytes:
    """One element of a BYTES tensor."""
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<I", len(data)) + data


def infer_request(
    text: str | bytes | None = "hi",
    sampling: dict[str, Any] | str | None = None,
    request_id: str = "r1",
    parameters: dict[str, Any] | None = None,
    outputs: tuple[str, ...] = (),
    model_name: str = "bytes",
    **flags: bool,
) -> pb.ModelInferRequest:
    """``sampling``: the tensor of that name, JSON or what stands in for it; ``parameters``: those of the request."""
    request = pb.ModelInferRequest(model_name=model_name, id=request_id)
    if text is not None:
        add_tensor(request, "text_input", "BYTES", packed(text))
    if sampling is not None:
        document = sampling if isinstance(sampling, str) else json.dumps(sampling)
        add_tensor(request, "sampling_parameters", "BYTES", packed(document))
    for name, value in flags.items():
        add_tensor(request, name, "BOOL", bytes([value]))
    for name, value in (parameters or {}).items():
        kind = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}[type(value)]
        setattr(request.parameters[name], kind, value)
    request.outputs.extend(pb.ModelInferRequest.InferRequestedOutputTensor(name=name) for name in outputs)
    return request


def add_tensor(
    request: pb.ModelInferRequest, name: str, datatype: str, raw: bytes, shape: tuple[int, ...] = (1,)
) -> None:
    request.inputs.add(name=name, datatype=datatype, shape=shape)
    request.raw_input_contents.append(raw)


def tensors_of(response: pb.ModelInferResponse) -> dict[str, list[Any]]:
    """The outputs by name, as the client of Triton reads them."""
    assert len(response.outputs) == len(response.raw_output_contents)
    found = {}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        found[output.name] = _elements(output.datatype, raw)
        assert [*output.shape] == [len(found[output.name])]
    return found


def _elements(datatype: str, raw: bytes) -> list[Any]:
    if datatype != "BYTES":
        return list(struct.unpack(f"<{len(raw) // 4}{'f' if datatype == 'FP32' else 'I'}", raw))
    elements = []
    while raw:
        (size,) = struct.unpack_from("<I", raw)
        elements.append(raw[4 : 4 + size].decode())
        raw = raw[4 + size :]
    return elements
