"""sluicegate.v1 requests checked and put into the gateway's own terms; every fault of a request is found at once."""

import uuid
from collections.abc import Sequence

from core.wire.messages import LoRARequest
from core.wire.sampling_params import Violation
from service.embedding import EmbeddingRequest
from service.errors import InvalidRequest, NotFound, Unimplemented, shown
from service.generation_request import GenerationRequest, OutputChoices
from service.prompt import encode_chat, encode_text, read_input, read_prompt, read_token_ids
from service.sampling import check_lists, read_sampling_params, read_stop_rules
from service.served_model import ServedModel
from sluicegate.v1 import inference_service_pb2 as pb

MAX_REQUEST_ID_BYTES = 256
MAX_CACHE_SALT_BYTES = 1024
MAX_ABORTED_IDS = 2**16


def translate(request: pb.GenerateRequest, model: ServedModel) -> GenerationRequest:
    """Raises InvalidRequest with every violation, NotFound for another model or a LoRA, Unimplemented.

    Takes about as long as tokenizing the prompt: 1.5 µs per token.
    """
    _check_model(request.model, model)
    if model.embeds:
        raise Unimplemented(f"{model.name} embeds texts and generates none", reason="MODEL_CANNOT_GENERATE")
    given = request.sampling_params
    check_lists(given)
    violations: list[Violation] = []
    lora = _find_lora(request, model, violations)
    prompt = read_prompt(request, model, violations)
    sampling_params = read_sampling_params(given, model, prompt.num_tokens, violations)
    stop = read_stop_rules(given, violations)
    violations += _envelope_violations(request, model)
    if violations:
        raise InvalidRequest(violations)
    return GenerationRequest(
        request_id=request.request_id or uuid.uuid4().hex,
        prompt_token_ids=prompt.token_ids,
        prompt_embeds=prompt.embeds,
        sampling_params=sampling_params,
        stop=stop,
        output=_read_output(request),
        priority=request.priority,
        cache_salt=request.cache_salt or None,
        data_parallel_rank=request.data_parallel_rank if request.HasField("data_parallel_rank") else None,
        lora=lora,
        may_differ=request.allow_inexact_resume,
    )


def translate_embed(request: pb.EmbedRequest, model: ServedModel) -> EmbeddingRequest:
    """Raises InvalidRequest with every violation, NotFound for another model."""
    _check_model(request.model, model)
    violations = request_id_violations(request.request_id)
    token_ids = read_input(request, model, violations)
    if request.HasField("dimensions") and request.dimensions < 1:
        violations.append(Violation("dimensions", f"must be at least 1, got {request.dimensions}"))
    if violations:
        raise InvalidRequest(violations)
    return EmbeddingRequest(
        request_id=request.request_id or uuid.uuid4().hex,
        prompt_token_ids=token_ids,
        dimensions=request.dimensions if request.HasField("dimensions") else None,
        is_normalized=request.normalize if request.HasField("normalize") else True,
    )


def tokenize(request: pb.TokenizeRequest, model: ServedModel) -> pb.TokenizeResponse:
    """Raises InvalidRequest, NotFound."""
    _check_model(request.model, model)
    violations: list[Violation] = []
    token_ids: list[int] = []
    max_bytes = model.max_excess_text_bytes
    match request.WhichOneof("input"):
        case "text":
            add_special_tokens = request.add_special_tokens if request.HasField("add_special_tokens") else True
            token_ids = encode_text(request.text, add_special_tokens, model.tokenizer, violations, max_bytes)
        case "chat":
            token_ids = encode_chat(request.chat, model.tokenizer, violations, max_bytes)
        case _:
            violations.append(Violation("input", "is required: one of text, chat"))
    if violations:
        raise InvalidRequest(violations)
    tokens = map(model.tokenizer.token_text, token_ids) if request.return_tokens else ()
    return pb.TokenizeResponse(token_ids=token_ids, tokens=tokens, max_model_len=model.max_model_len)


def detokenize(request: pb.DetokenizeRequest, model: ServedModel) -> pb.DetokenizeResponse:
    """Raises InvalidRequest, NotFound."""
    _check_model(request.model, model)
    violations: list[Violation] = []
    token_ids = read_token_ids("token_ids", request.token_ids, model.vocab_size, violations)
    if violations:
        raise InvalidRequest(violations)
    return pb.DetokenizeResponse(text=model.tokenizer.decode(token_ids, request.skip_special_tokens))


def read_request_ids(request_ids: Sequence[str]) -> list[str]:
    """Those of an Abort. Raises InvalidRequest for more than could ever be live: to look for millions takes seconds."""
    if (count := len(request_ids)) > MAX_ABORTED_IDS:
        raise InvalidRequest([Violation("request_ids", f"must be at most {MAX_ABORTED_IDS}, got {count}")])
    return list(request_ids)


def _check_model(name: str, model: ServedModel) -> None:
    """An adapter counts as a model: as vLLM's API has it, ``model`` may name one."""
    if name not in ("", model.name) and name not in model.adapters:
        raise NotFound(f"no model {shown(name)}; this server serves {model.name!r}", reason="MODEL_NOT_FOUND")


def _find_lora(request: pb.GenerateRequest, model: ServedModel, violations: list[Violation]) -> LoRARequest | None:
    """The adapter that ``lora_name`` names, or else ``model``. Raises NotFound.

    One may be unloaded at any moment: it is looked up once.
    """
    by_model = request.model if request.model != model.name else ""
    name = request.lora_name or by_model
    if not name:
        return None
    if (lora := model.adapters.get(name)) is None:
        raise NotFound(f"no LoRA adapter {shown(name)} is loaded", reason="LORA_NOT_FOUND")
    if by_model not in ("", name):
        violations.append(Violation("lora_name", f"must be {shown(by_model)}, which model names, got {shown(name)}"))
    return lora


def _envelope_violations(request: pb.GenerateRequest, model: ServedModel) -> list[Violation]:
    found = request_id_violations(request.request_id)
    size = len(request.cache_salt.encode())
    if size > MAX_CACHE_SALT_BYTES:
        found.append(Violation("cache_salt", f"must have at most {MAX_CACHE_SALT_BYTES} bytes, got {size}"))
    if request.data_parallel_rank >= model.data_parallel_size:
        bound = f"must be in [0, {model.data_parallel_size - 1}], got {request.data_parallel_rank}"
        found.append(Violation("data_parallel_rank", bound))
    return found


def request_id_violations(request_id: str) -> list[Violation]:
    """Whether there is one or not: where it is required, that is to be checked as well."""
    found = []
    size = len(request_id.encode())
    if size > MAX_REQUEST_ID_BYTES:
        found.append(Violation("request_id", f"must have at most {MAX_REQUEST_ID_BYTES} bytes, got {size}"))
    if not request_id.isprintable():
        found.append(Violation("request_id", f"must be printable, got {shown(request_id)}"))
    return found


def _read_output(request: pb.GenerateRequest) -> OutputChoices:
    options = request.output_options
    return OutputChoices(
        text=options.text if options.HasField("text") else True,
        token_ids=options.token_ids,
        skip_special_tokens=options.skip_special_tokens if options.HasField("skip_special_tokens") else True,
        echo_prompt_token_ids=options.echo_prompt_token_ids,
    )
