"""service.sampling: what each sampling parameter means to the core, and its bounds."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.wire.sampling_params import RepetitionDetection, SamplingParams, find_violations
from service.generation_config import GenerationConfig
from service.generation_request import StopRules
from service.sampling import MAX_LISTED_TOKENS
from service.served_model import ServedModel
from service.translate import translate
from sluicegate.v1 import inference_service_pb2 as pb
from tests.service.translation import faults_of, sampled, translated


def test_unset_means_the_documented_defaults(smollm2: ServedModel) -> None:
    """Nothing set, nothing declared by the model."""
    params = sampled(replace(smollm2, generation_config=GenerationConfig(eos_token_ids=(2,))))
    assert params == SamplingParams(max_tokens=8191, eos_token_id=2, all_stop_token_ids=[2])


def test_unset_means_what_the_model_declares_and_set_goes_before_it(smollm2: ServedModel) -> None:
    """Each of the five fields; an explicit zero is set."""
    declared = GenerationConfig(temperature=0.6, top_p=0.9, top_k=20, min_p=0.1, repetition_penalty=1.1)
    model = replace(smollm2, generation_config=declared)
    params = sampled(model)
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.6, 0.9, 20, 0.1)
    assert params.repetition_penalty == 1.1
    params = sampled(model, temperature=0, top_p=0.5, top_k=0, min_p=0, repetition_penalty=1)
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0, 0.5, 0, 0)
    assert params.is_greedy
    assert params.repetition_penalty == 1


def test_the_model_s_own_max_tokens_holds_for_who_sets_none(smollm2: ServedModel) -> None:
    """It is a default, not a bound, and no one is refused for it."""
    model = replace(smollm2, generation_config=GenerationConfig(max_tokens=50))
    assert sampled(model).max_tokens == 50
    assert sampled(model, max_tokens=70).max_tokens == 70
    assert sampled(model, min_tokens=60).max_tokens == 60


def test_every_scalar_reaches_the_core(smollm2: ServedModel) -> None:
    """By its own name."""
    scalars: dict[str, Any] = {
        "n": 3,
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 40,
        "min_p": 0.125,
        "seed": -(2**63),
        "max_tokens": 9,
        "min_tokens": 4,
        "presence_penalty": -1.5,
        "frequency_penalty": 2,
        "repetition_penalty": 1.25,
        "ignore_eos": True,
        "logprobs": 0,
        "prompt_logprobs": 20,
    }
    params = sampled(smollm2, **scalars)
    assert {name: getattr(params, name) for name in scalars} == scalars


@pytest.mark.parametrize("field", ["n", "top_p", "max_tokens", "repetition_penalty", "truncate_prompt_tokens"])
def test_an_explicit_zero_that_means_nothing_is_refused(smollm2: ServedModel, field: str) -> None:
    """It is not taken for unset."""
    assert faults_of(lambda: sampled(smollm2, **{field: 0})).keys() == {f"sampling_params.{field}"}


@pytest.mark.parametrize(
    "field",
    [
        *("temperature", "top_k", "min_p", "seed", "min_tokens", "presence_penalty", "frequency_penalty"),
        *("ignore_eos", "logprobs", "prompt_logprobs"),
    ],
)
def test_an_explicit_zero_is_a_zero(smollm2: ServedModel, field: str) -> None:
    """Whatever the model declares."""
    declared = GenerationConfig(temperature=0.6, top_p=0.9, top_k=20, min_p=0.1, repetition_penalty=1.1)
    value = getattr(sampled(replace(smollm2, generation_config=declared), **{field: 0}), field)
    assert value == 0
    assert value is not None


@pytest.mark.parametrize("top_k", [0, -1])
def test_top_k_off_has_two_names(smollm2: ServedModel, top_k: int) -> None:
    """0 and -1 keep all."""
    assert sampled(smollm2, top_k=top_k).top_k == 0


@pytest.mark.parametrize(("asked", "given"), [(1, 1), (10, 10), (11, 10), (500, 10)])
def test_max_tokens_ends_with_the_context(smollm2: ServedModel, asked: int, given: int) -> None:
    """Also where this gateway's max_model_len is below the core's: of 100 a prompt of 90 leaves 10."""
    request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=[5] * 90), sampling_params={"max_tokens": asked})
    assert translate(request, replace(smollm2, max_model_len=100)).sampling_params.max_tokens == given


@pytest.mark.parametrize("max_tokens", [None, 500])
def test_min_tokens_beyond_the_context_is_named(smollm2: ServedModel, max_tokens: int | None) -> None:
    """With and without max_tokens."""
    params = {"min_tokens": 11} | ({} if max_tokens is None else {"max_tokens": max_tokens})
    request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=[5] * 90), sampling_params=params)
    faults = faults_of(lambda: translate(request, replace(smollm2, max_model_len=100)))
    bound = "must be at most what the prompt leaves of max_model_len (10), got 11"
    assert faults == {"sampling_params.min_tokens": bound}


def test_lists_and_maps_reach_the_core(smollm2: ServedModel) -> None:
    """Doubles are dropped, empty ones are none."""
    params = sampled(smollm2, logit_bias={5: 1.5, 49_151: -100}, allowed_token_ids=[7, 5, 7], stop_token_ids=[9, 9, 8])
    assert params.logit_bias == {5: 1.5, 49_151: -100}
    assert params.allowed_token_ids == [7, 5]
    assert params.stop_token_ids == [9, 8]


def test_bias_is_clamped(smollm2: ServedModel) -> None:
    """To what vLLM's front end makes of it."""
    params = sampled(smollm2, logit_bias={1: 1e300, 2: -101, 3: 99.5})
    assert params.logit_bias == {1: 100, 2: -100, 3: 99.5}


@pytest.mark.parametrize("k", [0, 5])
def test_a_prompt_to_be_scored_is_not_taken_from_the_cache(smollm2: ServedModel, k: int) -> None:
    """A genuine core has to be told."""
    params = sampled(smollm2, prompt_logprobs=k)
    assert (params.prompt_logprobs, params.skip_reading_prefix_cache) == (k, True)
    assert sampled(smollm2).skip_reading_prefix_cache is None


def test_repetition_detection(smollm2: ServedModel) -> None:
    """As it is given; what is unset of it is 0, and unset itself it is none."""
    params = sampled(smollm2, repetition_detection={"max_pattern_size": 8, "min_count": 3})
    assert params.repetition_detection == RepetitionDetection(8, 0, 3)
    assert sampled(smollm2).repetition_detection is None


def test_the_prefix_cache_may_be_passed_over(smollm2: ServedModel) -> None:
    """If asked; a prompt that is scored passes over it whatever is asked."""
    assert sampled(smollm2, skip_reading_prefix_cache=True).skip_reading_prefix_cache is True
    assert sampled(smollm2, skip_reading_prefix_cache=False).skip_reading_prefix_cache is None
    assert sampled(smollm2, skip_reading_prefix_cache=False, prompt_logprobs=1).skip_reading_prefix_cache is True


def test_named_tokens_are_scored(smollm2: ServedModel) -> None:
    """In the order and number given; if logprobs is set too, it is their number."""
    assert sampled(smollm2, logprob_token_ids=[9, 7, 9]).logprob_token_ids == [9, 7, 9]
    assert sampled(smollm2).logprob_token_ids is None
    assert sampled(smollm2, logprob_token_ids=[9, 7], logprobs=2).logprobs == 2
    faults = faults_of(lambda: sampled(smollm2, logprob_token_ids=[9, 7], logprobs=3))
    assert faults == {"sampling_params.logprob_token_ids": "must have as many token ids as logprobs (3), got 2"}


def test_all_logprobs_where_the_operator_allows_them(smollm2: ServedModel) -> None:
    """As far as they fit into memory while nobody reads them: so many tokens of so many sequences."""
    model = replace(smollm2, max_logprobs=-1)
    params = sampled(model, logprobs=-1, prompt_logprobs=-1, max_tokens=341)
    assert (params.logprobs, params.prompt_logprobs) == (-1, -1)
    for more in ({"max_tokens": 342}, {}, {"max_tokens": 171, "n": 2}):
        assert faults_of(lambda more=more: sampled(model, logprobs=-1, **more)).keys() == {"sampling_params.max_tokens"}
    assert sampled(model, logprobs=20).max_tokens == 8191
    prompt = pb.TokenIds(ids=[5] * 342)
    asked = pb.GenerateRequest(token_ids=prompt, sampling_params={"prompt_logprobs": -1})
    assert faults_of(lambda: translate(asked, model)).keys() == {"sampling_params.prompt_logprobs"}


def test_end_of_sequence_and_stop_tokens(smollm2: ServedModel) -> None:
    """The first EOS as such, others as stop tokens; all are masked for min_tokens; ignore_eos leaves the client's."""
    model = replace(smollm2, generation_config=GenerationConfig(eos_token_ids=(2, 0)))
    params = sampled(model, stop_token_ids=[7])
    assert (params.eos_token_id, params.stop_token_ids, params.all_stop_token_ids) == (2, [7, 0], [2, 0, 7])
    params = sampled(model, stop_token_ids=[7], ignore_eos=True)
    assert (params.eos_token_id, params.stop_token_ids, params.all_stop_token_ids) == (None, [7], [2, 0, 7])
    params = sampled(model, ignore_eos=True)
    assert (params.eos_token_id, params.stop_token_ids) == (None, None)


def test_stop_rules_are_the_client_s_own(smollm2: ServedModel) -> None:
    """Not the model's further EOS tokens; and strings stay in the gateway."""
    model = replace(smollm2, generation_config=GenerationConfig(eos_token_ids=(2, 0)))
    given_params = {"stop": ["a", "bc"], "stop_token_ids": [7], "include_stop_str_in_output": True}
    request = translated(model, sampling_params=given_params)
    assert request.stop == StopRules(("a", "bc"), frozenset({7}), include_in_output=True)
    assert request.sampling_params.stop is None


def test_bad_words_are_tokenized_as_words_begin(smollm2: ServedModel) -> None:
    """Bare, and after a space where that is another token."""
    encode = smollm2.tokenizer.encode
    assert sampled(smollm2, bad_words=["Paris"]).bad_words_token_ids == [encode("Paris"), encode(" Paris")]
    assert sampled(smollm2, bad_words=[" Paris"]).bad_words_token_ids == [encode("Paris"), encode(" Paris")]
    assert sampled(smollm2, bad_words=["a b", "\n"]).bad_words_token_ids == [
        encode("a b"),
        encode(" a b"),
        encode("\n"),
        encode(" \n"),
    ]


_NAN, _INF = float("nan"), float("inf")
_WRONG_SCALARS: list[tuple[str, list[Any]]] = [
    ("n", [0, -1, 16_385, 10**6]),
    ("temperature", [-0.1, 2.1, _NAN, _INF, -_INF]),
    ("top_p", [0, -0.1, 1.1, _NAN, _INF, -_INF]),
    ("top_k", [-2]),
    ("repetition_penalty", [1e-7, 1e7]),
    ("min_p", [-0.1, 1.1, _NAN, _INF, -_INF]),
    ("max_tokens", [0, -1]),
    ("min_tokens", [-1, 8192]),
    ("presence_penalty", [-2.1, 2.1, _NAN, _INF, -_INF]),
    ("frequency_penalty", [-2.1, 2.1, _NAN, _INF, -_INF]),
    ("repetition_penalty", [0, -1, _NAN, _INF, -_INF]),
    ("logprobs", [-2, -1, 21]),
    ("prompt_logprobs", [-2, -1, 21]),
    ("truncate_prompt_tokens", [0, -2]),
]
_WRONG_OTHERS: list[tuple[str, list[Any]]] = [
    ("stop", [[""], ["a", ""], ["x" * 1025], ["é" * 513], ["a"] * 65]),
    ("stop_token_ids", [[49_152], [5, 2**32 - 1]]),
    ("allowed_token_ids", [[49_152]]),
    ("logit_bias", [{49_152: 5.0}, {2**32 - 1: 0.0}]),
    ("repetition_detection", [{"max_pattern_size": 2, "min_pattern_size": 3, "min_count": 2}, {"max_pattern_size": 1}]),
    ("logprob_token_ids", [[49_152], [1] * 129]),
    ("bad_words", [[""], ["x"] * 1025, ["a", "\u00e9" * 513], ["\U0001d4d0" * 256] * 1000]),
    ("json_schema", ["", "{", "[]", "[" * 100_000]),
    ("structural_tag", ["", "nonsense"]),
    ("regex", ["", "  "]),
    ("grammar", ["", "\n"]),
    ("choice", [{"choices": []}, {"choices": ["a", ""]}]),
    ("json_object", [False]),
]


@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field, values in _WRONG_SCALARS + _WRONG_OTHERS for value in values],
    ids=lambda value: repr(value)[:30],
)
def test_wrong_sampling_field_is_named(smollm2: ServedModel, field: str, value: Any) -> None:
    """That field, and no other."""
    assert faults_of(lambda: sampled(smollm2, **{field: value})).keys() == {f"sampling_params.{field}"}


@pytest.mark.parametrize("bias", [_NAN, _INF, -_INF])
def test_bias_that_is_no_number_is_named_with_its_token(smollm2: ServedModel, bias: float) -> None:
    """The entry of the map."""
    assert faults_of(lambda: sampled(smollm2, logit_bias={5: bias})).keys() == {"sampling_params.logit_bias[5]"}


def test_min_tokens_above_max_tokens_is_named(smollm2: ServedModel) -> None:
    """With both numbers."""
    faults = faults_of(lambda: sampled(smollm2, min_tokens=9, max_tokens=8))
    assert faults == {"sampling_params.min_tokens": "must be at most max_tokens (8), got 9"}


def test_seed_minus_one_is_none(smollm2: ServedModel) -> None:
    """As vLLM takes it, so that the n sequences of an unseeded request differ from call to call."""
    assert sampled(smollm2, seed=-1).seed is None


def test_token_lists_are_bounded_by_the_sequences_that_each_get_them(smollm2: ServedModel) -> None:
    """One sequence may name the whole vocabulary; thousands may not."""
    biases = dict.fromkeys(range(49_152), 1.0)
    assert len(sampled(smollm2, logit_bias=biases).logit_bias) == 49_152
    faults = faults_of(lambda: sampled(smollm2, logit_bias=biases, n=512))
    assert faults.keys() == {"sampling_params.n"}
    assert "must be at most 5 with" in faults["sampling_params.n"]
    assert sampled(smollm2, allowed_token_ids=range(100), n=512).n == 512


def test_several_sequences_need_chance(smollm2: ServedModel) -> None:
    """n > 1 with temperature 0 would be the same n times."""
    assert faults_of(lambda: sampled(smollm2, n=2, temperature=0)).keys() == {"sampling_params.n"}


@given(st.lists(st.text("abc \n", min_size=1, max_size=5), max_size=5), st.integers(0, 49_151))
def test_whatever_is_accepted_is_within_the_core_s_bounds(
    smollm2: ServedModel, words: list[str], token_id: int
) -> None:
    """The core checks again and finds nothing."""
    params = sampled(smollm2, bad_words=words, stop_token_ids=[token_id], allowed_token_ids=[token_id])
    assert not [*find_violations(params, smollm2.vocab_size)]


@pytest.mark.parametrize("field", ["stop", "bad_words", "stop_token_ids", "allowed_token_ids", "logit_bias"])
def test_endless_lists_are_not_looked_into(smollm2: ServedModel, field: str) -> None:
    """Whatever else is wrong: to copy a million entries would hold everybody up."""
    entries = range(MAX_LISTED_TOKENS + 1)
    words = [str(entry) for entry in entries]
    of_field: dict[str, Any] = {"stop": words, "bad_words": words, "logit_bias": dict.fromkeys(entries, 1.0)}
    faults = faults_of(lambda: translated(smollm2, sampling_params={"n": 0, field: of_field.get(field, entries)}))
    assert faults == {f"sampling_params.{field}": "must have at most 262144 entries, got 262145"}
