"""VllmEngine requests in the gateway's own terms.

Each is first written as the sluicegate.v1 request that means the same, so that both APIs have one set of checks and
bounds; what is wrong then gets the name that its field has here. A zero that this contract takes for "unset" (top_p,
repetition_penalty, n) becomes its default on the way, and the model's generation_config counts for nothing: routers ask
for it (GetModelInfo) and apply it themselves.
"""

from collections.abc import Iterator
from dataclasses import replace

from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from core.wire.sampling_params import MAX_COUNT, MAX_N, Violation
from service.embedding import EmbeddingRequest
from service.errors import InvalidRequest
from service.generation_config import GenerationConfig
from service.generation_request import GenerationRequest
from service.sampling import check_lists
from service.served_model import ServedModel
from service.translate import translate, translate_embed
from sluicegate.v1 import inference_service_pb2 as own
from sluicegate.v1 import sampling_params_pb2 as own_sampling

_PLAIN = ("min_p", "frequency_penalty", "presence_penalty", "ignore_eos", "include_stop_str_in_output")
_ONE_IF_ZERO = ("top_p", "repetition_penalty")
_OPTIONAL = ("logprobs", "prompt_logprobs", "seed", "truncate_prompt_tokens")
_UNSERVED = {
    "kv_transfer_params": "this server hands no KV cache over",
    "kv_transfer_params_json": "this server hands no KV cache over",
    "mm_inputs": "this server takes text only",
    "extra_mm_inputs": "this server takes text only",
    "media_refs": "this server takes text only",
}
_NAMES = {"token_ids": "tokenized.input_ids", "token_ids.ids": "tokenized.input_ids"}
"""Of fields, here, by what they are called in sluicegate.v1. The others have the same name in both."""


def to_generation_request(request: pb.GenerateRequest, model: ServedModel) -> GenerationRequest:
    """Raises InvalidRequest with every violation, Unimplemented.

    Takes about as long as tokenizing the prompt: 1.5 µs per token of a text, a tenth of that for tokens.
    """
    check_lists(request.sampling_params)
    violations = [*_unserved(request), *_out_of_range(request, model)]
    translated = None
    try:
        translated = translate(_own_request(request), _without_recommendations(model))
    except InvalidRequest as error:
        violations += map(_renamed, error.violations)
    if violations or translated is None:
        raise InvalidRequest(violations)
    given = request.sampling_params
    if given.grammar_from_first_token and given.WhichOneof("constraint"):
        return replace(translated, reasoning_ended=True)
    return translated


def to_embedding_request(request: pb.EmbedRequest, model: ServedModel) -> EmbeddingRequest:
    """Raises InvalidRequest with every violation."""
    violations = [] if request.request_id else [Violation("request_id", "is required")]
    if not request.HasField("tokenized"):
        raise InvalidRequest([*violations, Violation("tokenized", "is required")])
    token_ids = own.TokenIds(ids=request.tokenized.input_ids)
    translated = None
    try:
        translated = translate_embed(own.EmbedRequest(request_id=request.request_id, token_ids=token_ids), model)
    except InvalidRequest as error:
        violations += map(_renamed, error.violations)
    if violations or translated is None:
        raise InvalidRequest(violations)
    return translated


def _own_request(request: pb.GenerateRequest) -> own.GenerateRequest:
    given = request.sampling_params
    translated = own.GenerateRequest(
        request_id=request.request_id,
        sampling_params=_own_sampling_params(given),
        output_options=own.OutputOptions(text=False, token_ids=True, skip_special_tokens=given.skip_special_tokens),
    )
    match request.WhichOneof("input"):
        case "tokenized":
            translated.token_ids.ids.extend(request.tokenized.input_ids)
            translated.token_ids.SetInParent()
        case "text":
            translated.text = request.text
    if request.data_parallel_rank > 0 or request.HasField("data_parallel_rank"):
        translated.data_parallel_rank = max(request.data_parallel_rank, 0)
    return translated


def _own_sampling_params(given: pb.SamplingParams) -> own_sampling.SamplingParams:
    params = own_sampling.SamplingParams(
        n=min(given.n, MAX_N) or 1,
        temperature=given.temperature if given.HasField("temperature") else 1.0,
        top_k=min(given.top_k, MAX_COUNT),
        min_tokens=min(given.min_tokens, MAX_COUNT),
        stop=given.stop,
        stop_token_ids=given.stop_token_ids,
        logit_bias={token_id: bias for token_id, bias in given.logit_bias.items() if token_id >= 0},
    )
    for field in _PLAIN:
        setattr(params, field, getattr(given, field))
    for field in _ONE_IF_ZERO:
        setattr(params, field, getattr(given, field) or 1.0)
    for field in _OPTIONAL:
        if given.HasField(field):
            setattr(params, field, getattr(given, field))
    if given.HasField("max_tokens"):
        params.max_tokens = min(given.max_tokens, MAX_COUNT)
    _set_constraint(params, given)
    return params


def _set_constraint(params: own_sampling.SamplingParams, given: pb.SamplingParams) -> None:
    kind = given.WhichOneof("constraint")
    if kind == "choice":
        params.choice.choices.extend(given.choice.choices)
        params.choice.SetInParent()
    elif kind is not None:
        setattr(params, kind, getattr(given, kind))


def _unserved(request: pb.GenerateRequest) -> Iterator[Violation]:
    """A field that would change what is generated, and is not served, is refused and not passed over."""
    for field, _ in request.ListFields():
        if (why := _UNSERVED.get(field.name)) is not None:
            yield Violation(field.name, f"must be unset: {why}")


def _out_of_range(request: pb.GenerateRequest, model: ServedModel) -> Iterator[Violation]:
    """What sluicegate.v1 has no number for, or asks of its own clients only."""
    given = request.sampling_params
    if not request.request_id:
        yield Violation("request_id", "is required")
    if request.data_parallel_rank < 0:
        bound = f"must be in [0, {model.data_parallel_size - 1}], got {request.data_parallel_rank}"
        yield Violation("data_parallel_rank", bound)
    if given.n > MAX_N:
        yield Violation("sampling_params.n", f"must be in [1, {MAX_N}], got {given.n}")
    if (lowest := min(given.logit_bias, default=0)) < 0:
        bound = f"token ids must be in [0, {model.vocab_size - 1}], got {lowest}"
        yield Violation("sampling_params.logit_bias", bound)


def _renamed(violation: Violation) -> Violation:
    if violation.field == "prompt":
        return Violation("input", "is required: one of tokenized, text")
    return violation._replace(field=_NAMES.get(violation.field, violation.field))


def _without_recommendations(model: ServedModel) -> ServedModel:
    return replace(model, generation_config=GenerationConfig(eos_token_ids=model.generation_config.eos_token_ids))
