"""service.prompt_embeds: rows in place of the embeddings of tokens, checked as far as the gateway can."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from core.wire.tensor import Tensor
from service.generation import Generation
from service.served_model import ServedModel
from service.translate import translate
from sluicegate.v1 import inference_service_pb2 as pb
from tests.service.translation import faults_of

HIDDEN_SIZE = 576
ROWS = np.arange(2 * HIDDEN_SIZE, dtype=np.float32).reshape(2, HIDDEN_SIZE)


def request_of(sampling_params: dict[str, Any] | None = None, **fields: Any) -> pb.GenerateRequest:
    given = {"num_tokens": 2, "hidden_size": HIDDEN_SIZE, "data": ROWS.tobytes()} | fields
    return pb.GenerateRequest(prompt_embeds=pb.PromptEmbeds(**given), sampling_params=sampling_params)


@pytest.mark.parametrize(
    ("dtype", "stored", "name"),
    [
        (pb.EMBEDS_DTYPE_UNSPECIFIED, ROWS, "float32"),
        (pb.EMBEDS_DTYPE_FLOAT32, ROWS, "float32"),
        (pb.EMBEDS_DTYPE_FLOAT16, ROWS.astype(np.float16), "float16"),
        (pb.EMBEDS_DTYPE_BFLOAT16, ROWS.astype(np.float16).view(np.uint16), "bfloat16"),
    ],
)
def test_rows_reach_the_core_as_they_are(smollm2: ServedModel, dtype: Any, stored: Any, name: str) -> None:
    """Of every type, and without a token; they count as tokens of the prompt."""
    request = translate(request_of(dtype=dtype, data=stored.tobytes()), smollm2)
    (message,) = Generation(request, smollm2.tokenizer).core_requests()
    assert message.prompt_token_ids is None
    assert message.prompt_embeds == Tensor(stored, name)
    assert request.num_prompt_tokens == message.num_prompt_tokens == 2
    assert request.sampling_params.max_tokens == smollm2.max_model_len - 2


def test_every_sequence_gets_the_rows(smollm2: ServedModel) -> None:
    """And each counts in what live requests may hold."""
    request = translate(request_of({"n": 3, "temperature": 1.0}), smollm2)
    assert len(Generation(request, smollm2.tokenizer).core_requests()) == 3
    assert request.num_embeds_bytes == 3 * ROWS.nbytes


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"num_tokens": 0, "data": b""}, "num_tokens", "must be at least 1, got 0"),
        ({"hidden_size": 0}, "hidden_size", "must be 576, the model's hidden size, got 0"),
        ({"hidden_size": 64}, "hidden_size", "must be 576, the model's hidden size, got 64"),
        ({"dtype": 7}, "dtype", "must be a value of EmbedsDtype, got 7"),
        ({"data": b"1234"}, "data", "must have 4608 bytes for 2 rows of 576 float32, got 4"),
        ({"dtype": pb.EMBEDS_DTYPE_FLOAT16}, "data", "must have 2304 bytes for 2 rows of 576 float16, got 4608"),
        ({"num_tokens": 2**32 - 1}, "data", "got 4608"),
    ],
)
def test_rows_that_do_not_fit_are_refused(smollm2: ServedModel, fields: Any, field: str, words: str) -> None:
    """By the field, the value and the bound."""
    faults = faults_of(lambda: translate(request_of(**fields), smollm2))
    assert words in faults[f"prompt_embeds.{field}"]


def test_rows_as_long_as_the_context_are_refused(smollm2: ServedModel) -> None:
    """One token at least is for the output."""
    faults = faults_of(lambda: translate(request_of(), replace(smollm2, max_model_len=2)))
    assert "has 2 tokens, must have less than max_model_len (2)" in faults["prompt_embeds"]


@pytest.mark.parametrize("field", ["prompt_logprobs", "truncate_prompt_tokens"])
def test_what_means_something_for_tokens_only_is_refused(smollm2: ServedModel, field: str) -> None:
    """Zero counts as given."""
    faults = faults_of(lambda: translate(request_of({field: 1}), smollm2))
    assert "must be unset with prompt_embeds" in faults[f"sampling_params.{field}"]


def test_a_model_that_does_not_say_its_hidden_size_leaves_it_to_the_core(smollm2: ServedModel) -> None:
    """Any size but 0."""
    silent = replace(smollm2, hidden_size=None)
    rows = np.zeros((2, 8), np.float32)
    assert translate(request_of(hidden_size=8, data=rows.tobytes()), silent).prompt_embeds == Tensor(rows)
    faults = faults_of(lambda: translate(request_of(hidden_size=0, data=b""), silent))
    assert "must be at least 1, got 0" in faults["prompt_embeds.hidden_size"]
