"""Reading whole requests, also such as nobody should send."""

import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import InvalidRequest, NotFound
from service.generation_config import GenerationConfig
from service.models import ModelFiles
from service.served_model import ServedModel
from service.servicers.kserve.infer_request import read_infer_request
from service.text.tokenizer import Tokenizer
from sluicegate.third_party.inference import grpc_service_pb2 as pb
from tests.service.byte_model import EOS_TOKEN_ID, VOCAB_SIZE
from tests.service.servicers.kserve.requests import infer_request

_NAMES = [
    *("n", "temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "min_tokens", "stop", "logprobs"),
    *("stop_token_ids", "logit_bias", "bad_words", "guided_decoding", "structured_outputs", "lora_name", "ignore_eos"),
    *("allowed_token_ids", "truncate_prompt_tokens", "skip_special_tokens", "repetition_penalty", "song"),
]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_SAMPLING = st.dictionaries(st.sampled_from(_NAMES), _JSON, max_size=4)


@pytest.fixture(scope="module")
def model(byte_model: ModelFiles) -> ServedModel:
    return ServedModel(
        name="bytes",
        tokenizer=Tokenizer.load(byte_model.tokenizer_folder),
        generation_config=GenerationConfig(eos_token_ids=(EOS_TOKEN_ID,)),
        vocab_size=VOCAB_SIZE,
        max_model_len=1024,
    )


def test_a_request(model: ServedModel) -> None:
    """What it asks for, under an id of its own; the model's recommendations count for nothing."""
    read = read_infer_request(infer_request(stream=True, return_logprobs=True), model, may_stream=True)
    assert (read.id, read.model_name, read.is_stream, read.prepended) == ("r1", "bytes", True, "")
    assert sorted(spec.name for spec in read.outputs) == ["logprobs", "text_output"]
    assert read.generation.request_id.startswith("r1-")
    assert read.generation.prompt_token_ids == [*b"hi"]
    assert read.generation.sampling_params.max_tokens == 16


def _is_read_or_refused(request: pb.ModelInferRequest, model: ServedModel) -> None:
    with suppress(InvalidRequest, NotFound):
        read_infer_request(request, model, may_stream=True)


@given(sampling=_SAMPLING)
@settings(max_examples=100, deadline=None)
def test_any_sampling_parameters(model: ServedModel, sampling: dict[str, Any]) -> None:
    """They are taken or refused; nothing else is raised."""
    _is_read_or_refused(infer_request(sampling=sampling), model)


@given(seed=st.integers(0, 2**32), data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_request(model: ServedModel, seed: int, data: st.DataObject) -> None:
    """Also with bytes changed anywhere, as long as it decodes."""
    draw = random.Random(seed)
    message = bytearray(
        infer_request(sampling={"n": 1}, stream=True, return_logprobs=True, parameters={"x": 1}).SerializeToString()
    )
    for _ in range(data.draw(st.integers(1, 4))):
        message[draw.randrange(len(message))] = draw.randrange(256)
    try:
        request = pb.ModelInferRequest.FromString(bytes(message))
    except Exception:
        return
    _is_read_or_refused(request, model)
