"""VllmEngine's requests in the gateway's own terms."""

import math
from dataclasses import replace
from typing import Any

import pytest
from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from core.wire.sampling_params import SamplingParams
from service.generation_config import GenerationConfig
from service.generation_request import GenerationRequest, OutputChoices
from service.served_model import ServedModel
from service.servicers.vllm_engine.requests import to_embedding_request, to_generation_request
from tests.service.translation import faults_of

IDS = [1, 2, 3]


def translated(served: ServedModel, **fields: Any) -> GenerationRequest:
    return to_generation_request(asked(**fields), served)


def asked(**fields: Any) -> pb.GenerateRequest:
    if "text" not in fields:
        fields.setdefault("tokenized", pb.TokenizedInput(input_ids=IDS, original_text="ignored"))
    return pb.GenerateRequest(**{"request_id": "r", **fields})


def sampled(served: ServedModel, **fields: Any) -> SamplingParams:
    return translated(served, sampling_params=pb.SamplingParams(**fields)).sampling_params


def faults(served: ServedModel, **fields: Any) -> dict[str, str]:
    return faults_of(lambda: translated(served, **fields))


def sampling_faults(served: ServedModel, **fields: Any) -> dict[str, str]:
    return faults(served, sampling_params=pb.SamplingParams(**fields))


def test_unset_is_the_contracts_default(smollm2: ServedModel) -> None:
    """Not what the model's authors recommend (temperature 0.2, top_p 0.9): routers apply that themselves."""
    recommended = GenerationConfig(temperature=0.2, top_p=0.9, top_k=7, min_p=0.1, repetition_penalty=1.1, max_tokens=9)
    served = replace(smollm2, generation_config=replace(recommended, eos_token_ids=(2, 0)))
    params = sampled(served)
    expected = SamplingParams(max_tokens=served.max_model_len - len(IDS), eos_token_id=2, stop_token_ids=[0])
    expected.all_stop_token_ids = [2, 0]
    assert params == expected


def test_zero_is_unset_where_zero_makes_no_sense(smollm2: ServedModel) -> None:
    """top_p, repetition_penalty and n; a temperature that is set to 0 is greedy."""
    params = sampled(smollm2, top_p=0, repetition_penalty=0, n=0, temperature=0, top_k=0)
    assert (params.top_p, params.repetition_penalty, params.n, params.temperature, params.top_k) == (1, 1, 1, 0, 0)
    assert params.is_greedy


def test_minus_one_as_top_k_is_off(smollm2: ServedModel) -> None:
    """The field has no sign: a client that casts sends 2**32 - 1, which is more than any vocabulary."""
    assert sampled(smollm2, top_k=2**32 - 1).top_k >= smollm2.vocab_size


def test_every_parameter_reaches_the_core(smollm2: ServedModel) -> None:
    """By its own name there."""
    given = {
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "min_p": 0.125,
        "frequency_penalty": 1,
        "presence_penalty": -1,
        "repetition_penalty": 1.5,
        "max_tokens": 9,
        "min_tokens": 3,
        "n": 2,
        "seed": -7,
        "logprobs": 3,
        "prompt_logprobs": 4,
        "ignore_eos": True,
        "logit_bias": {5: 1.5},
    }
    params = sampled(smollm2, **given, stop_token_ids=[9])
    assert {name: getattr(params, name) for name in given} == given
    assert params.stop_token_ids == [9]


def test_stop_strings_stay_here(smollm2: ServedModel) -> None:
    """The core gets none of them."""
    params = pb.SamplingParams(stop=["a", "b"], include_stop_str_in_output=True, skip_special_tokens=True)
    request = translated(smollm2, sampling_params=params)
    assert (request.stop.strings, request.stop.include_in_output) == (("a", "b"), True)
    assert request.sampling_params.stop is None
    assert request.output == OutputChoices(text=False, token_ids=True, skip_special_tokens=True)
    assert not translated(smollm2).output.skip_special_tokens


@pytest.mark.parametrize(
    ("given", "core_name", "value"),
    [
        ({"json_schema": '{"type": "object"}'}, "json", '{"type": "object"}'),
        ({"regex": "a+"}, "regex", "a+"),
        ({"grammar": 'root ::= "a"'}, "grammar", 'root ::= "a"'),
        (
            {"structural_tag": '{"structures": [], "triggers": []}'},
            "structural_tag",
            '{"structures": [], "triggers": []}',
        ),
        ({"json_object": True}, "json_object", True),
        ({"choice": pb.ChoiceConstraint(choices=["a", "b"])}, "choice", ["a", "b"]),
    ],
)
def test_a_constraint_is_a_form_of_the_output(
    smollm2: ServedModel, given: dict[str, Any], core_name: str, value: object
) -> None:
    """Each of the oneof; it may count from the first token, whatever reasoning parser the core has."""
    request = translated(smollm2, sampling_params=pb.SamplingParams(**given))
    assert getattr(request.sampling_params.structured_outputs, core_name) == value
    assert request.reasoning_ended is None
    at_once = translated(smollm2, sampling_params=pb.SamplingParams(**given, grammar_from_first_token=True))
    assert at_once.reasoning_ended is True


def test_without_a_constraint_reasoning_is_left_alone(smollm2: ServedModel) -> None:
    assert translated(smollm2, sampling_params=pb.SamplingParams(grammar_from_first_token=True)).reasoning_ended is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"json_object": False}, "json_object"),
        ({"json_schema": ""}, "json_schema"),
        ({"json_schema": "{"}, "json_schema"),
        ({"regex": ""}, "regex"),
        ({"choice": pb.ChoiceConstraint()}, "choice"),
    ],
)
def test_a_constraint_that_shows_to_be_wrong_is_named(smollm2: ServedModel, given: dict[str, Any], field: str) -> None:
    """Without compiling it."""
    assert sampling_faults(smollm2, **given).keys() == {f"sampling_params.{field}"}


@pytest.mark.parametrize("kept", [2, 3, 99])
def test_the_last_tokens_of_a_prompt_are_kept(smollm2: ServedModel, kept: int) -> None:
    """With truncate_prompt_tokens."""
    params = pb.SamplingParams(truncate_prompt_tokens=kept)
    assert translated(smollm2, sampling_params=params).prompt_token_ids == IDS[-kept:]


def test_truncated_to_what_the_model_takes(smollm2: ServedModel) -> None:
    """-1: as many as leave room for max_tokens."""
    served = replace(smollm2, max_model_len=10)
    params = pb.SamplingParams(truncate_prompt_tokens=-1, max_tokens=4)
    request = translated(served, sampling_params=params, tokenized=pb.TokenizedInput(input_ids=range(50)))
    assert request.prompt_token_ids == [*range(44, 50)]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tokenized": pb.TokenizedInput()}, "tokenized.input_ids"),
        ({"tokenized": pb.TokenizedInput(input_ids=[49152])}, "tokenized.input_ids"),
        ({"tokenized": pb.TokenizedInput(input_ids=[2**32 - 1])}, "tokenized.input_ids"),
        ({"tokenized": pb.TokenizedInput(input_ids=[0] * 8192)}, "tokenized.input_ids"),
        ({"tokenized": None}, "input"),
        ({"text": ""}, "text"),
        ({"request_id": ""}, "request_id"),
        ({"request_id": "a\nb"}, "request_id"),
        ({"data_parallel_rank": -1}, "data_parallel_rank"),
        ({"data_parallel_rank": 1}, "data_parallel_rank"),
        ({"kv_transfer_params": pb.KvTransferParams(remote_host="h")}, "kv_transfer_params"),
        ({"kv_transfer_params_json": "{}"}, "kv_transfer_params_json"),
        ({"mm_inputs": pb.MultimodalInputs()}, "mm_inputs"),
        ({"extra_mm_inputs": [pb.MultimodalInputs()]}, "extra_mm_inputs"),
        ({"media_refs": pb.MediaRefs(items=[pb.MediaRef(url="http://x")])}, "media_refs"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_request_has_its_name_here(
    smollm2: ServedModel, fields: dict[str, Any], named: str
) -> None:
    assert faults(smollm2, **fields).keys() == {named}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        *(
            ({field: bad}, field)
            for field in ("temperature", "top_p", "min_p")
            for bad in (math.nan, math.inf, -math.inf)
        ),
        *(({field: math.nan}, field) for field in ("frequency_penalty", "presence_penalty", "repetition_penalty")),
        ({"top_p": 3}, "top_p"),
        ({"top_p": -0.5}, "top_p"),
        ({"temperature": -1}, "temperature"),
        ({"frequency_penalty": 3}, "frequency_penalty"),
        ({"repetition_penalty": -1}, "repetition_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"min_tokens": 2**32 - 1}, "min_tokens"),
        ({"logprobs": -2}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt_logprobs": -2}, "prompt_logprobs"),
        ({"n": 2**32 - 1}, "n"),
        ({"n": 2, "temperature": 0}, "n"),
        ({"logit_bias": {-1: 5}}, "logit_bias"),
        ({"logit_bias": {49152: 5}}, "logit_bias"),
        ({"stop_token_ids": [49157]}, "stop_token_ids"),
        ({"stop": [""]}, "stop"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_parameter_has_its_name(smollm2: ServedModel, fields: dict[str, Any], named: str) -> None:
    """Bounds are those of sluicegate.v1."""
    assert sampling_faults(smollm2, **fields).keys() == {f"sampling_params.{named}"}


def test_all_faults_are_named_at_once(smollm2: ServedModel) -> None:
    """Those found here and those found by the checks of both APIs."""
    found = faults(
        smollm2,
        request_id="",
        data_parallel_rank=-1,
        media_refs=pb.MediaRefs(),
        tokenized=pb.TokenizedInput(),
        sampling_params=pb.SamplingParams(n=99999, top_p=2, logit_bias={-1: 1}),
    )
    sampling = {f"sampling_params.{name}" for name in ("n", "top_p", "logit_bias")}
    assert found.keys() == {"request_id", "data_parallel_rank", "media_refs", "tokenized.input_ids"} | sampling
    assert found["sampling_params.n"] == "must be in [1, 16384], got 99999"


def test_the_longest_prompt_leaves_one_token(smollm2: ServedModel) -> None:
    """max_model_len - 1 tokens; a longer one is refused with both numbers."""
    served = replace(smollm2, max_model_len=10)
    longest = pb.TokenizedInput(input_ids=range(9))
    assert translated(served, tokenized=longest).sampling_params.max_tokens == 1
    for length in (10, 11):
        (text,) = faults(served, tokenized=pb.TokenizedInput(input_ids=range(length))).values()
        assert f"{length} tokens" in text
        assert "(10)" in text


def test_rank_is_kept(smollm2: ServedModel) -> None:
    """Zero is a rank; unset is none."""
    served = replace(smollm2, data_parallel_size=2)
    ranks = [
        translated(served, **fields).data_parallel_rank
        for fields in ({}, {"data_parallel_rank": 0}, {"data_parallel_rank": 1})
    ]
    assert ranks == [None, 0, 1]


def test_embedding_needs_an_id_and_tokens(smollm2: ServedModel) -> None:
    request = pb.EmbedRequest(request_id="e", tokenized=pb.TokenizedInput(input_ids=IDS))
    translated = to_embedding_request(request, smollm2)
    assert (translated.request_id, translated.prompt_token_ids, translated.is_normalized) == ("e", IDS, True)
    for wrong, named in (
        (pb.EmbedRequest(), {"request_id", "tokenized"}),
        (pb.EmbedRequest(tokenized=pb.TokenizedInput()), {"request_id", "tokenized.input_ids"}),
        (pb.EmbedRequest(request_id="e", tokenized=pb.TokenizedInput(input_ids=[49152])), {"tokenized.input_ids"}),
        (pb.EmbedRequest(request_id="e", tokenized=pb.TokenizedInput(input_ids=[0] * 8193)), {"tokenized.input_ids"}),
    ):
        assert faults_of(lambda wrong=wrong: to_embedding_request(wrong, smollm2)).keys() == named
