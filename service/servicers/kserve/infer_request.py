"""One ModelInfer request in the gateway's own terms.

It is first written as the sluicegate.v1 request that means the same, so that all APIs have one set of checks and
bounds; what is wrong gets the name that it has here.
"""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from core.wire.sampling_params import Violation
from service.errors import InvalidRequest, NotFound, shown
from service.generation_request import GenerationRequest
from service.served_model import ServedModel
from service.servicers.kserve.input_tensors import InputTensors
from service.servicers.kserve.parameter_values import NotThatError, as_object
from service.servicers.kserve.sampling_parameters import Values, given_parameters, read_sampling_parameters
from service.servicers.kserve.tensor_specs import (
    CUMULATIVE_LOGPROB,
    EXCLUDE_INPUT,
    OUTPUT_OF,
    OUTPUTS,
    SAMPLING_PARAMETERS,
    STREAM,
    TEXT_INPUT,
    TEXT_OUTPUT,
    TensorSpec,
)
from service.translate import translate
from sluicegate.third_party.inference import grpc_service_pb2 as pb
from sluicegate.v1 import inference_service_pb2 as own

MAX_ID_BYTES = 200
VERSION = "1"
"""The only one of every model."""
_EMPTY_FINAL_RESPONSE = "triton_enable_empty_final_response"
_FIELDS_SHOWN = {"text": TEXT_INPUT.name, "model": "model_name", "request_id": "id"}
_PARAMETERS_SHOWN = dict.fromkeys(
    ("json_schema", "regex", "choice", "grammar", "json_object", "structural_tag"), "structured_outputs"
)
"""Fields of sluicegate.v1, by what they are called here."""
_OUTPUT_NAMES = {spec.name: spec for spec in OUTPUTS}


@dataclass(frozen=True)
class InferRequest:
    """``prepended`` is what the text begins with, ``outputs`` are the tensors to answer with.

    ``asks_for_logprobs``: by its sampling parameters; they may be needed for their sum only.
    """

    id: str
    model_name: str
    generation: GenerationRequest
    is_stream: bool
    prepended: str
    outputs: frozenset[TensorSpec]
    asks_for_logprobs: bool
    ends_with_empty_response: bool


def read_infer_request(request: pb.ModelInferRequest, model: ServedModel, may_stream: bool) -> InferRequest:
    """Raises InvalidRequest with every violation, NotFound for another model or version, Unimplemented.

    Takes about as long as tokenizing the prompt: 1.5 µs per token.
    """
    check_version(request.model_version)
    violations = [*_id_violations(request.id)]
    tensors = InputTensors(request, violations)
    text = _text(tensors, violations)
    is_stream = _is_stream(tensors, may_stream, violations)
    outputs = _outputs(request, tensors, violations)
    field, values = _parameters(request, tensors, violations)
    sampling, others = read_sampling_parameters(field, values, violations)
    asks_for_logprobs = sampling.HasField("logprobs")
    if CUMULATIVE_LOGPROB in outputs and not asks_for_logprobs:
        sampling.logprobs = 0
    own_request = own.GenerateRequest(
        request_id=_unique(request.id),
        model=request.model_name,
        text=text,
        sampling_params=sampling,
        lora_name=others.get("lora_name") or "",
        output_options=own.OutputOptions(token_ids=True, skip_special_tokens=others.get("skip_special_tokens")),
    )
    return InferRequest(
        id=request.id,
        model_name=request.model_name or model.name,
        generation=_translated(own_request, model, field, violations),
        is_stream=is_stream,
        prepended="" if is_stream or tensors.flag(EXCLUDE_INPUT) else text,
        outputs=outputs,
        asks_for_logprobs=asks_for_logprobs,
        ends_with_empty_response=wants_empty_final_response(request),
    )


def wants_empty_final_response(request: pb.ModelInferRequest) -> bool:
    """Whether a last response without outputs is to tell the end."""
    return _EMPTY_FINAL_RESPONSE in request.parameters and request.parameters[_EMPTY_FINAL_RESPONSE].bool_param


def check_version(version: str) -> None:
    """Raises NotFound for another one than there is."""
    if version not in ("", VERSION):
        raise NotFound(f"no version {shown(version)}; every model has the version {VERSION}", reason="MODEL_NOT_FOUND")


def _id_violations(request_id: str) -> Iterator[Violation]:
    """It is sent back with every response."""
    size = len(request_id.encode())
    if size > MAX_ID_BYTES:
        yield Violation("id", f"must have at most {MAX_ID_BYTES} bytes, got {size}")


def _text(tensors: InputTensors, violations: list[Violation]) -> str:
    if TEXT_INPUT not in tensors and not violations:
        violations.append(Violation(TEXT_INPUT.name, "is required"))
    return tensors.text(TEXT_INPUT)


def _is_stream(tensors: InputTensors, may_stream: bool, violations: list[Violation]) -> bool:
    is_stream = tensors.flag(STREAM) or False
    if is_stream and not may_stream:
        violations.append(Violation(STREAM.name, "must be false, got true: streams are ModelStreamInfer's"))
    if is_stream and tensors.flag(EXCLUDE_INPUT) is False:
        violations.append(Violation(EXCLUDE_INPUT.name, "must be true in a stream, got false"))
    return is_stream


def _outputs(
    request: pb.ModelInferRequest, tensors: InputTensors, violations: list[Violation]
) -> frozenset[TensorSpec]:
    """Those that the flags ask for, or of them those that ``outputs`` names."""
    outputs = {TEXT_OUTPUT, *(output for flag, output in OUTPUT_OF.items() if tensors.flag(flag))}
    for named in request.outputs:
        if named.name not in _OUTPUT_NAMES:
            known = ", ".join(_OUTPUT_NAMES)
            violations.append(Violation("outputs", f"no tensor {shown(named.name)} is known; there are {known}"))
        for parameter in named.parameters:
            bound = "has no parameters here: outputs come whole, and with the response"
            violations.append(Violation("outputs", f"{shown(named.name)} {bound}, got {shown(parameter)}"))
    wanted = {named.name for named in request.outputs}
    return frozenset(output for output in outputs if not wanted or output.name in wanted)


def _parameters(
    request: pb.ModelInferRequest, tensors: InputTensors, violations: list[Violation]
) -> tuple[str, Values]:
    """Where the sampling parameters stand, and what they are."""
    if SAMPLING_PARAMETERS not in tensors:
        return "parameters", given_parameters(request)
    text = tensors.text(SAMPLING_PARAMETERS)
    try:
        return SAMPLING_PARAMETERS.name, as_object(text)
    except NotThatError as error:
        if all(violation.field != SAMPLING_PARAMETERS.name for violation in violations):
            violations.append(Violation(SAMPLING_PARAMETERS.name, f"{error}, got {shown(text)}"))
        return SAMPLING_PARAMETERS.name, {}


def _translated(
    request: own.GenerateRequest, model: ServedModel, field: str, violations: list[Violation]
) -> GenerationRequest:
    """Raises InvalidRequest with ``violations`` and those that show only here."""
    translated = None
    try:
        translated = translate(request, model)
    except InvalidRequest as error:
        known = {violation.field for violation in violations}
        violations += [found for found in _renamed(error.violations, field) if found.field not in known]
    if violations or translated is None:
        raise InvalidRequest(violations)
    return translated


def _renamed(violations: Iterable[Violation], parameters: str) -> Iterator[Violation]:
    for violation in violations:
        first, dot, rest = violation.field.partition(".")
        if first == "sampling_params" and dot:
            yield violation._replace(field=f"{parameters}.{_PARAMETERS_SHOWN.get(rest, rest)}")
        elif first == "lora_name":
            yield violation._replace(field=f"{parameters}.{first}")
        else:
            yield violation._replace(field=_FIELDS_SHOWN.get(first, violation.field))


def _unique(request_id: str) -> str:
    """The ids of a client are unique to that client at best."""
    name = request_id if request_id.isprintable() and len(request_id.encode()) <= MAX_ID_BYTES else ""
    return f"{name}-{secrets.token_hex(8)}".lstrip("-")
