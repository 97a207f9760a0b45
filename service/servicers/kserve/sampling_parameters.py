"""Sampling parameters by vLLM's names, as Triton's vLLM backend takes them: a JSON object, or the request's parameters.

What is not given has vLLM's own default, and not what the model recommends: ``max_tokens`` is 16.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from core.wire.sampling_params import Violation
from service.errors import shown
from service.servicers.kserve.parameter_values import (
    NotThatError,
    as_bool,
    as_float,
    as_int,
    as_list,
    as_object,
    as_text,
)
from sluicegate.third_party.inference import grpc_service_pb2 as pb
from sluicegate.v1 import sampling_params_pb2 as own

DEFAULT_MAX_TOKENS = 16
_RESERVED = ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout")
_RESERVED_PREFIX = "triton_"
"""Of parameters that are for the server, not for the model."""
_FORM_FIELDS = {
    "json": "json_schema",
    "json_schema": "json_schema",
    "regex": "regex",
    "grammar": "grammar",
    "structural_tag": "structural_tag",
}
Values = Mapping[str, Any]
_Setter = Callable[[own.SamplingParams, str, Any], None]


def given_parameters(request: pb.ModelInferRequest) -> Values:
    """Those of the request's parameters that are for the model."""
    return {
        name: getattr(parameter, kind) if (kind := parameter.WhichOneof("parameter_choice")) else None
        for name, parameter in request.parameters.items()
        if name not in _RESERVED and not name.startswith(_RESERVED_PREFIX)
    }


def read_sampling_parameters(
    field: str, values: Values, violations: list[Violation]
) -> tuple[own.SamplingParams, dict[str, Any]]:
    """The parameters that sluicegate.v1 has, and those that it has elsewhere, by name.

    What is wrong is added to ``violations``, as of ``field``.
    """
    sampling = own.SamplingParams(temperature=1.0, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0)
    sampling.max_tokens = DEFAULT_MAX_TOKENS
    others: dict[str, Any] = {}
    for name, value in values.items():
        try:
            if name in _OTHERS:
                others[name] = None if value is None else _OTHERS[name](value)
            elif name in _SETTERS:
                _set(sampling, name, value)
            else:
                violations.append(Violation(field, f"no parameter {shown(name)} is known"))
        except NotThatError as error:
            violations.append(Violation(f"{field}.{name}", f"{error}, got {shown(value)}"))
    return sampling, others


def _set(sampling: own.SamplingParams, name: str, value: Any) -> None:
    if value is None:  # as in vLLM: no limit, no seed
        if name in sampling.DESCRIPTOR.fields_by_name:
            sampling.ClearField(name)  # type: ignore[arg-type]
        return
    try:
        _SETTERS[name](sampling, name, value)
    except NotThatError:
        raise
    except (ValueError, TypeError, OverflowError) as error:
        raise NotThatError("must be in the range of its type") from error


def _scalar(convert: Callable[[Any], Any]) -> _Setter:
    return lambda sampling, name, value: setattr(sampling, name, convert(value))


def _listed(convert: Callable[[Any], Any]) -> _Setter:
    return lambda sampling, name, value: getattr(sampling, name).extend(map(convert, as_list(value)))


def _set_stop(sampling: own.SamplingParams, _name: str, value: Any) -> None:
    """One string, or a list of them."""
    sampling.stop.extend(map(as_text, [value] if isinstance(value, str) else as_list(value)))


def _set_logit_bias(sampling: own.SamplingParams, _name: str, value: Any) -> None:
    sampling.logit_bias.update({as_int(token): as_float(bias) for token, bias in as_object(value).items()})


def _set_form(sampling: own.SamplingParams, _name: str, value: Any) -> None:
    """Exactly one of the forms that vLLM knows; its other settings are for engines that this is none of."""
    for kind, form in as_object(value).items():
        if form is None or form is False:
            continue
        if sampling.WhichOneof("structured_output") is not None:
            raise NotThatError("must name one form")
        if kind == "choice":
            sampling.choice.choices.extend(map(as_text, as_list(form)))
            sampling.choice.SetInParent()
        elif kind == "json_object":
            sampling.json_object = as_bool(form)
        elif kind in _FORM_FIELDS:
            setattr(sampling, _FORM_FIELDS[kind], form if isinstance(form, str) else json.dumps(form))
        else:
            raise NotThatError(f"must name one of {', '.join(_FORM_FIELDS)}, choice, json_object")


_SETTERS: dict[str, _Setter] = {
    **dict.fromkeys(
        ("n", "top_k", "seed", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs", "truncate_prompt_tokens"),
        _scalar(as_int),
    ),
    **dict.fromkeys(
        ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
        _scalar(as_float),
    ),
    **dict.fromkeys(("ignore_eos", "include_stop_str_in_output"), _scalar(as_bool)),
    **dict.fromkeys(("stop_token_ids", "allowed_token_ids"), _listed(as_int)),
    "bad_words": _listed(as_text),
    "stop": _set_stop,
    "logit_bias": _set_logit_bias,
    "guided_decoding": _set_form,
    "structured_outputs": _set_form,
}
"""vLLM's older and newer name of the form are both known."""
_OTHERS: dict[str, Callable[[Any], Any]] = {"skip_special_tokens": as_bool, "lora_name": as_text}
