"""How a request that has begun is put to another core so that it goes on. Pure: neither sockets nor clock.

    core                   goes on as if nothing had happened
    ours, of the same key  whatever the request asks for
    any other              what was not begun; what is greedy and asks for nothing that counts from the prompt's end on

Other requests go on only if they allow other tokens than they would have had, and in no case within a form: a core that
knows nothing of all this takes prompt and output for a longer prompt, and begins the form anew.
"""

import msgspec

from core.wire.messages import EngineCoreRequest, EngineReadyResponse
from core.wire.resume import Resume, resuming
from core.wire.sampling_params import SamplingParams

PENALTIES_OFF = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}


class NotResumableError(Exception):
    """No core that is there can go on with it; the text says why."""


def resumed_request(
    request: EngineCoreRequest,
    token_ids: list[int],
    core_id: str,
    origin: EngineReadyResponse,
    core: EngineReadyResponse,
    *,
    may_differ: bool,
) -> EngineCoreRequest:
    """``request``, of which a core like ``origin`` gave ``token_ids``, for ``core``, which is to call it ``core_id``.

    ``may_differ``: better tokens that it would not have had than none. Raises NotResumableError.
    """
    renamed = msgspec.structs.replace(request, request_id=core_id)
    params = request.sampling_params
    if params is None:  # A text to embed: its one output is its last.
        return renamed
    if core.resume_key is not msgspec.UNSET and (core.resume_key == origin.resume_key or not token_ids or may_differ):
        renamed.sampling_params = resuming(params, Resume(token_ids, request.request_id))
        return renamed
    if not token_ids:
        return renamed
    if origin.resume_key != core.resume_key and not may_differ:
        raise NotResumableError("the core is of another model, or not one that can go on with it")
    _check_continuable(request, params, origin, core, may_differ=may_differ)
    renamed.prompt_token_ids = [*(request.prompt_token_ids or ()), *token_ids]
    renamed.sampling_params = _after(params, len(token_ids))
    return renamed


def _check_continuable(
    request: EngineCoreRequest,
    params: SamplingParams,
    origin: EngineReadyResponse,
    core: EngineReadyResponse,
    *,
    may_differ: bool,
) -> None:
    if request.prompt_embeds is not None:
        raise NotResumableError("its prompt is made of embeddings, which tokens cannot be added to")
    if params.structured_outputs is not None:
        raise NotResumableError("its output has a form, which the core would begin anew")
    if may_differ:
        return
    if (core.max_model_len, core.dtype, core.block_size) != (origin.max_model_len, origin.dtype, origin.block_size):
        raise NotResumableError("the core is not like the one that began it")
    if not params.is_greedy:
        raise NotResumableError("its tokens are drawn at random, which the core would begin anew")
    if found := _looks_back(params):
        raise NotResumableError(f"{found} counts from where the prompt ends, which the core cannot be told")


def _looks_back(params: SamplingParams) -> str | None:
    """The first option that makes a difference between prompt and output."""
    for name, off in PENALTIES_OFF.items():
        if getattr(params, name) != off:
            return name
    if any(len(word) > 1 for word in params.bad_words_token_ids or ()):
        return "bad_words"
    if params.repetition_detection is not None and params.repetition_detection.max_pattern_size > 0:
        return "repetition_detection"
    return "thinking_token_budget" if params.thinking_token_budget is not None else None


def _after(params: SamplingParams, num_tokens: int) -> SamplingParams:
    """What is left of it. The prompt was scored already."""
    return msgspec.structs.replace(
        params,
        max_tokens=None if params.max_tokens is None else params.max_tokens - num_tokens,
        min_tokens=max(params.min_tokens - num_tokens, 0),
        prompt_logprobs=None,
    )
