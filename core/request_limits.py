"""What a request must satisfy before the engine takes it."""

from collections.abc import Iterator
from dataclasses import dataclass

from core.prompt_embeds import find_embeds_violations, prompt_tokens
from core.structured_output.form import find_form_violations
from core.wire.messages import EngineCoreRequest, LoRARequest
from core.wire.resume import find_resume_violations
from core.wire.sampling_params import (
    MAX_LOGPROBS,
    SamplingParams,
    Violation,
    find_scored_prompt_violations,
    find_violations,
)

# To ignore one of these would give an answer that looks right and is not.
_UNSUPPORTED = ("mm_features", "pooling_params", "resumable")
_UNLIMITED = -1


class RequestError(ValueError):
    """A request that cannot be served as it is. ``violations`` names each field, its value and its bound."""

    def __init__(self, *violations: Violation) -> None:
        super().__init__("; ".join(f"{field} {description}" for field, description in violations))
        self.violations = violations


@dataclass(frozen=True)
class RequestLimits:
    """``max_cached_tokens``: how many tokens' keys and values fit when one request has the whole KV cache."""

    max_model_len: int
    vocab_size: int
    max_cached_tokens: int
    hidden_size: int
    has_loras: bool = False
    """Whether requests may name adapters."""
    max_logprobs: int = MAX_LOGPROBS

    @property
    def max_num_tokens(self) -> int:
        """Of prompt and output together. The last token is never computed, so it needs no place in the KV cache."""
        return min(self.max_model_len, self.max_cached_tokens + 1)


def check_request(request: EngineCoreRequest, limits: RequestLimits) -> SamplingParams:
    """The request's sampling parameters. Raises RequestError with everything that is wrong."""
    violations = list(_find_request_violations(request, limits))
    if violations or request.sampling_params is None:
        raise RequestError(*violations)
    return request.sampling_params


def _find_request_violations(request: EngineCoreRequest, limits: RequestLimits) -> Iterator[Violation]:
    for field in _UNSUPPORTED:
        if getattr(request, field):
            yield Violation(field, "is not supported by this engine")
    if request.lora_request is not None:
        yield from _lora_violations(request.lora_request, limits)
    if request.prompt_embeds is None:
        yield from _token_prompt_violations(request, limits)
    else:
        yield from _embeds_prompt_violations(request, limits)
    if request.sampling_params is None:
        yield Violation("sampling_params", "must be given")
    else:
        yield from _sampling_violations(request.sampling_params, limits)
        num_tokens = len(request.prompt_token_ids or ())
        yield from find_scored_prompt_violations(request.sampling_params, limits.vocab_size, num_tokens)
        room = request.num_prompt_tokens, limits.vocab_size, limits.max_num_tokens
        yield from find_resume_violations(request.sampling_params, *room)


def _lora_violations(lora: LoRARequest, limits: RequestLimits) -> Iterator[Violation]:
    if not limits.has_loras:
        yield Violation("lora_request", "is not supported by this engine: LoRA is not enabled (--enable-lora)")
    elif lora.lora_int_id < 1:
        yield Violation("lora_request", f"must have an id of at least 1, got {lora.lora_int_id}")


def _token_prompt_violations(request: EngineCoreRequest, limits: RequestLimits) -> Iterator[Violation]:
    if request.prompt_is_token_ids:
        yield Violation("prompt_is_token_ids", "goes with prompt_embeds, which are not given")
    if request.prompt_token_ids:
        yield from _length_violations("prompt_token_ids", len(request.prompt_token_ids), limits)
        yield from _vocabulary_violations(request.prompt_token_ids, limits.vocab_size)
    else:
        yield Violation("prompt_token_ids", "must hold at least one token")


def _embeds_prompt_violations(request: EngineCoreRequest, limits: RequestLimits) -> Iterator[Violation]:
    assert request.prompt_embeds is not None, "asked by the caller"
    rows, token_ids, is_token_ids = request.prompt_embeds, request.prompt_token_ids, request.prompt_is_token_ids
    if request.sampling_params is not None and request.sampling_params.prompt_logprobs is not None:
        yield Violation("prompt_logprobs", "must not be given with prompt_embeds: a row is no token to score")
    found = list(find_embeds_violations(rows, token_ids, is_token_ids, limits.hidden_size))
    yield from found
    if not found:
        yield from _length_violations("prompt_embeds", len(rows.array), limits)
        yield from _vocabulary_violations(prompt_tokens(request), limits.vocab_size)


def _length_violations(field: str, length: int, limits: RequestLimits) -> Iterator[Violation]:
    if length >= limits.max_model_len:
        bound = f"max_model_len ({limits.max_model_len}), which counts prompt and output"
        yield Violation(field, f"must hold fewer tokens than {bound}, got {length}")
    elif length > limits.max_cached_tokens:
        yield Violation(field, f"must fit the KV cache of {limits.max_cached_tokens} tokens, got {length}")


def _vocabulary_violations(token_ids: list[int], vocab_size: int) -> Iterator[Violation]:
    if min(token_ids) < 0 or max(token_ids) >= vocab_size:
        position, token_id = next((i, t) for i, t in enumerate(token_ids) if not 0 <= t < vocab_size)
        bound = f"[0, {vocab_size - 1}]"
        yield Violation("prompt_token_ids", f"must be in {bound}, got {token_id} at position {position}")


def _sampling_violations(params: SamplingParams, limits: RequestLimits) -> Iterator[Violation]:
    if params.thinking_token_budget not in (None, _UNLIMITED):
        yield Violation("thinking_token_budget", "needs a reasoning parser, which this engine does not have")
    if params.bad_words and not params.bad_words_token_ids:
        yield Violation("bad_words", "must come with their tokens (_bad_words_token_ids): this engine has no tokenizer")
    if params.n > 1:
        yield Violation("n", f"must be 1: the front end sends one request per sequence, got {params.n}")
    if params.structured_outputs is not None:
        yield from find_form_violations(params.structured_outputs)
    yield from find_violations(params, limits.vocab_size, limits.max_logprobs)
