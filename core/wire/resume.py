"""How a request goes on in another core than the one that began it. Genuine cores and front ends know nothing of it.

    ready response   ``resume_key``: this core can go on with what another began; with one of the same key, exactly so
    ADD              SamplingParams.extra_args["sluicegate_resume"]: what the other core gave, and under which id

The prompt stays what it was. What counts from its end on (penalties, least and most tokens, forms, draws) goes on where
it was, as after a preemption; what a first output tells of the prompt is not told again.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from core.wire.sampling_params import SamplingParams, Violation

RESUME_ARG = "sluicegate_resume"


class Resume(msgspec.Struct):
    """``request_id``: under which the first core had it, from which draws without a seed follow."""

    output_token_ids: list[int]
    request_id: str


def resuming(params: SamplingParams, resume: Resume) -> SamplingParams:
    """A copy of ``params`` for a request that ``resume`` tells of."""
    extra_args = {**(params.extra_args or {}), RESUME_ARG: msgspec.structs.asdict(resume)}
    return msgspec.structs.replace(params, extra_args=extra_args)


def resume_of(params: SamplingParams | None) -> Resume | None:
    """What ``params`` tells, None if nothing. Raises ValueError if that is none."""
    told: Any = params.extra_args and params.extra_args.get(RESUME_ARG) if params is not None else None
    if told is None:
        return None
    try:
        return msgspec.convert(told, Resume)
    except msgspec.ValidationError as error:
        raise ValueError(f"extra_args[{RESUME_ARG!r}]: {error}") from error


def find_resume_violations(
    params: SamplingParams, num_prompt_tokens: int, vocab_size: int, max_num_tokens: int
) -> Iterator[Violation]:
    """What is wrong with the tokens that a request is to go on from. ``max_num_tokens``: of prompt and output."""
    try:
        resume = resume_of(params)
    except ValueError as error:
        yield Violation("extra_args", str(error))
        return
    if resume is None or not resume.output_token_ids:
        return
    token_ids, num_tokens = resume.output_token_ids, len(resume.output_token_ids)
    if min(token_ids) < 0 or max(token_ids) >= vocab_size:
        yield Violation("output_token_ids", f"must be in [0, {vocab_size - 1}]")
    bound = max_num_tokens - num_prompt_tokens
    if params.max_tokens is not None:
        bound = min(bound, params.max_tokens)
    if num_tokens >= bound:
        yield Violation(
            "output_token_ids", f"must hold fewer than the {bound} tokens there is room for, got {num_tokens}"
        )
