"""The tensors of a request. All of them have one element.

Data comes in ``raw_input_contents``, one entry for each input, or in the inputs' ``contents``. An element of BYTES has
its length before it there: 4 bytes, little-endian.
"""

from collections.abc import Iterable
from typing import TypeVar

from core.wire.sampling_params import Violation
from service.errors import shown
from service.servicers.kserve.tensor_specs import INPUTS, TensorSpec
from sluicegate.third_party.inference import grpc_service_pb2 as pb

_Element = TypeVar("_Element")
_LENGTH_BYTES = 4
_SPECS = {spec.name: spec for spec in INPUTS}
_SHARED_MEMORY = "shared_memory_region"
_NOT_SERVED = {"image": "this server takes text only", "embedding_request": "this server generates text only"}
"""Tensors that the backend also has."""


class InputTensors:
    """What is wrong with them is added to ``violations``, with the name of the tensor as the field."""

    def __init__(self, request: pb.ModelInferRequest, violations: list[Violation]) -> None:
        self._violations = violations
        self._values: dict[str, bytes | bool | None] = {}
        raw = request.raw_input_contents
        if raw and len(raw) != len(request.inputs):
            bound = f"must have an entry for each of the {len(request.inputs)} inputs, or none, got {len(raw)}"
            violations.append(Violation("raw_input_contents", bound))
            return
        for index, tensor in enumerate(request.inputs):
            self._take(tensor, raw[index] if raw else None)

    def __contains__(self, spec: TensorSpec) -> bool:
        """Whether the request has it, well formed or not."""
        return spec.name in self._values

    def text(self, spec: TensorSpec) -> str:
        """Of a BYTES tensor; empty if it is not there."""
        value = self._values.get(spec.name)
        if not isinstance(value, bytes):
            return ""
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            self._refuse(spec.name, f"must be UTF-8: {error.reason} at byte {error.start} of {len(value)}")
            return ""

    def flag(self, spec: TensorSpec) -> bool | None:
        """Of a BOOL tensor; None if it is not there."""
        value = self._values.get(spec.name)
        return value if isinstance(value, bool) else None

    def _take(self, tensor: pb.ModelInferRequest.InferInputTensor, raw: bytes | None) -> None:
        spec = _SPECS.get(tensor.name)
        if spec is None:
            self._refuse(tensor.name, _why_unknown(tensor.name))
        elif spec in self:
            self._refuse(spec.name, "must be given once, got it twice")
        else:
            self._values[spec.name] = self._read(spec, tensor, raw) if self._fits(spec, tensor, raw) else None

    def _fits(self, spec: TensorSpec, tensor: pb.ModelInferRequest.InferInputTensor, raw: bytes | None) -> bool:
        num_known = len(self._violations)
        if tensor.datatype != spec.datatype:
            self._refuse(spec.name, f"must have the datatype {spec.datatype}, got {shown(tensor.datatype)}")
        if [*tensor.shape] != [spec.size]:
            self._refuse(spec.name, f"must have the shape [{spec.size}], got {_shape(tensor.shape)}")
        if _SHARED_MEMORY in tensor.parameters:
            self._refuse(spec.name, "must come with the request: this server reads no shared memory")
        if raw is not None and tensor.HasField("contents"):
            self._refuse(spec.name, "must be in contents or in raw_input_contents, got both")
        return len(self._violations) == num_known

    def _read(
        self, spec: TensorSpec, tensor: pb.ModelInferRequest.InferInputTensor, raw: bytes | None
    ) -> bytes | bool | None:
        if spec.datatype == "BOOL":
            return self._read_bool(spec, tensor.contents.bool_contents, raw)
        if raw is not None:
            return self._read_bytes(spec, raw)
        return self._only(spec, "bytes_contents", tensor.contents.bytes_contents)

    def _read_bool(self, spec: TensorSpec, contents: Iterable[bool], raw: bytes | None) -> bool | None:
        if raw is None:
            return self._only(spec, "bool_contents", contents)
        if len(raw) == 1 and raw[0] <= 1:
            return bool(raw[0])
        got = f"{len(raw)} bytes" if len(raw) != 1 else f"the byte {raw[0]}"
        self._refuse(spec.name, f"must be one byte, 0 or 1, got {got}")
        return None

    def _read_bytes(self, spec: TensorSpec, raw: bytes) -> bytes | None:
        if len(raw) < _LENGTH_BYTES:
            self._refuse(spec.name, f"must begin with the 4 bytes of its length, got {len(raw)} bytes")
            return None
        size = int.from_bytes(raw[:_LENGTH_BYTES], "little")
        if size != len(raw) - _LENGTH_BYTES:
            self._refuse(spec.name, f"must have the {size} bytes that it begins with saying, got {len(raw) - 4}")
            return None
        return raw[_LENGTH_BYTES:]

    def _only(self, spec: TensorSpec, field: str, contents: Iterable[_Element]) -> _Element | None:
        elements = [*contents]
        if len(elements) == 1:
            return elements[0]
        self._refuse(spec.name, f"must have one element in {field}, got {len(elements)}")
        return None

    def _refuse(self, name: str, description: str) -> None:
        self._violations.append(Violation(name if name in _SPECS or name in _NOT_SERVED else "inputs", description))


def _why_unknown(name: str) -> str:
    if name in _NOT_SERVED:
        return f"must be left out: {_NOT_SERVED[name]}"
    return f"no tensor {shown(name)} is known; there are {', '.join(_SPECS)}"


def _shape(shape: Iterable[int]) -> str:
    return shown([*shape])
