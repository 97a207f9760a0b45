"""Short ways to have a request translated, and to see what was wrong with it."""

from collections.abc import Callable
from typing import Any

import pytest

from core.wire.sampling_params import SamplingParams
from service.errors import InvalidRequest
from service.generation_request import GenerationRequest
from service.served_model import ServedModel
from service.translate import translate
from sluicegate.v1 import inference_service_pb2 as pb


def translated(served: ServedModel, **fields: Any) -> GenerationRequest:
    """A request with the prompt "Hello" and ``fields``."""
    return translate(pb.GenerateRequest(**{"text": "Hello", **fields}), served)


def sampled(served: ServedModel, **fields: Any) -> SamplingParams:
    """What the core gets for these sampling parameters."""
    return translated(served, sampling_params=fields).sampling_params


def faults_of(call: Callable[[], object]) -> dict[str, str]:
    """The violations, by field, with which ``call`` is refused. Each field is named once."""
    with pytest.raises(InvalidRequest) as caught:
        call()
    faults = dict(caught.value.violations)
    assert len(faults) == len(caught.value.violations)
    return faults
