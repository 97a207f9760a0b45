"""How to choose a request's tokens, and the bounds of every field."""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import msgspec

MAX_N = 16_384
"""Most sequences one request may ask for (vLLM's VLLM_MAX_N_SEQUENCES)."""
MAX_LOGPROBS = 20
"""Most log-probabilities per token, beside the sampled one, unless the operator says otherwise (vLLM's default)."""
ALL_LOGPROBS = -1
"""As a number of log-probabilities, and as the operator's bound on it: those of the whole vocabulary."""
MAX_LOGPROB_TOKEN_IDS = 128
MAX_LOGPROB_ENTRIES = 1 << 24
"""Of one request, each a token and its log-probability: 128 MiB."""
GREEDY_TEMPERATURE = 1e-5
"""Temperatures below this one mean greedy."""
MAX_COUNT = 2**31 - 1
"""Of top_k and min_tokens."""
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 1e-6, 1e6
MAX_LOGIT_BIAS = 1e20
"""Of either sign. With the extreme penalty and the lowest temperature upon it, a logit is still finite in float32."""
MAX_BAD_WORDS = 4096
"""Token sequences. Each is compared at every step; the gateway's bound on words makes at most half as many."""
MAX_FORM_BYTES = 64 * 1024
"""Of a schema, expression, grammar or tag, its pattern of white space included, and of all choices together."""


class StructuredOutputs(msgspec.Struct, rename={"backend": "_backend", "backend_was_auto": "_backend_was_auto"}):
    """At most one of the first five and ``structural_tag`` is set. ``json`` is a schema, as text or as a map."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | None = None
    backend: str | None = None
    backend_was_auto: bool = False


class RepetitionDetection(msgspec.Struct, omit_defaults=True):
    """End a request when its last tokens repeat a pattern ``min_count`` times. ``max_pattern_size`` 0 = off."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0


class SamplingParams(
    msgspec.Struct,
    omit_defaults=True,
    kw_only=True,
    rename={
        "eos_token_id": "_eos_token_id",
        "all_stop_token_ids": "_all_stop_token_ids",
        "bad_words_token_ids": "_bad_words_token_ids",
    },
):
    """A msgpack map on the wire, in this field order; fields that keep their default are left out.

    The core stops on ``eos_token_id`` (never set when EOS is ignored) and on ``stop_token_ids``;
    ``all_stop_token_ids`` is what ``min_tokens`` masks. ``stop``, ``detokenize``, ``output_kind`` and the like
    concern the front end alone.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | bool | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    flat_logprobs: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: int = 0
    skip_clone: bool = False
    output_text_buffer_length: int = 0
    eos_token_id: int | None = None
    all_stop_token_ids: list[int] = msgspec.field(default_factory=list)
    structured_outputs: StructuredOutputs | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: dict[str, Any] | None = None
    routed_experts_prompt_start: int = 0
    bad_words: list[str] | None = None
    bad_words_token_ids: list[list[int]] | None = None
    skip_reading_prefix_cache: bool | None = None
    thinking_token_budget: int | None = None
    repetition_detection: RepetitionDetection | None = None

    def __post_init__(self) -> None:
        """``logprobs`` may be true, as vLLM takes it for 1."""
        if isinstance(self.logprobs, bool):
            self.logprobs = int(self.logprobs)

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_TEMPERATURE


class Violation(NamedTuple):
    """One field out of bounds: its name and a sentence with the value and the bound."""

    field: str
    description: str


def find_violations(params: SamplingParams, vocab_size: int, max_logprobs: int = MAX_LOGPROBS) -> Iterator[Violation]:
    """Every field of ``params`` that is out of bounds, once each. ``max_logprobs`` may be ALL_LOGPROBS.

    The bounds are those of vLLM's SamplingParams and, where it has none, what a model runner's numbers can hold.
    Both sides of the wire ask: the gateway to refuse the call, the core because it trusts no front end.
    """
    yield from _sequence_violations(params)
    yield from _distribution_violations(params)
    yield from _length_violations(params)
    bound = vocab_size if max_logprobs == ALL_LOGPROBS else max_logprobs
    yield from _logprobs_violations(params, bound, vocab_size)
    yield from _token_id_violations(params, vocab_size)


def _sequence_violations(params: SamplingParams) -> Iterator[Violation]:
    if not 1 <= params.n <= MAX_N:
        yield Violation("n", f"must be in [1, {MAX_N}], got {params.n}")
    elif params.n > 1 and params.is_greedy:
        yield Violation("n", f"must be 1 when temperature is 0 (greedy), got {params.n}")


def _distribution_violations(params: SamplingParams) -> Iterator[Violation]:
    # Written as "not low <= x <= high", which NaN fails.
    for field in ("presence_penalty", "frequency_penalty"):
        if not -2 <= (value := getattr(params, field)) <= 2:
            yield Violation(field, f"must be in [-2, 2], got {value}")
    if not MIN_REPETITION_PENALTY <= params.repetition_penalty <= MAX_REPETITION_PENALTY:
        bound = f"[{MIN_REPETITION_PENALTY:g}, {MAX_REPETITION_PENALTY:g}]"
        yield Violation("repetition_penalty", f"must be in {bound}, got {params.repetition_penalty}")
    if not 0 <= params.temperature <= 2:
        yield Violation("temperature", f"must be in [0, 2], got {params.temperature}")
    if not 0 < params.top_p <= 1:
        yield Violation("top_p", f"must be in (0, 1], got {params.top_p}")
    if not -1 <= params.top_k <= MAX_COUNT:
        yield Violation("top_k", f"must be -1 or 0 (off) or in [1, {MAX_COUNT}], got {params.top_k}")
    if not 0 <= params.min_p <= 1:
        yield Violation("min_p", f"must be in [0, 1], got {params.min_p}")


def _length_violations(params: SamplingParams) -> Iterator[Violation]:
    if params.max_tokens is not None and params.max_tokens < 1:
        yield Violation("max_tokens", f"must be at least 1, got {params.max_tokens}")
    if not 0 <= params.min_tokens <= MAX_COUNT:
        yield Violation("min_tokens", f"must be in [0, {MAX_COUNT}], got {params.min_tokens}")
    elif params.max_tokens is not None and params.min_tokens > params.max_tokens >= 1:
        yield Violation("min_tokens", f"must be at most max_tokens ({params.max_tokens}), got {params.min_tokens}")
    if params.repetition_detection is not None:
        yield from _repetition_violations(params.repetition_detection)


def _repetition_violations(repetition: RepetitionDetection) -> Iterator[Violation]:
    if not 0 <= repetition.min_pattern_size <= repetition.max_pattern_size:
        sizes = f"{repetition.min_pattern_size} and {repetition.max_pattern_size}"
        yield Violation("repetition_detection", f"needs 0 <= min_pattern_size <= max_pattern_size, got {sizes}")
    elif repetition.max_pattern_size > 0 and repetition.min_count < 2:
        yield Violation("repetition_detection", f"min_count must be at least 2, got {repetition.min_count}")


def find_scored_prompt_violations(params: SamplingParams, vocab_size: int, num_tokens: int) -> Iterator[Violation]:
    """Of a prompt with ``num_tokens`` tokens: what is scored is kept until the prompt is complete."""
    if params.prompt_logprobs is None:
        return
    entries = num_logprob_entries(params.prompt_logprobs, vocab_size)
    if num_tokens * entries > MAX_LOGPROB_ENTRIES:
        bound = f"{MAX_LOGPROB_ENTRIES} log-probabilities"
        yield Violation("prompt_logprobs", f"must give at most {bound}, got {entries} for each of {num_tokens} tokens")


def num_logprob_entries(num_logprobs: int, vocab_size: int) -> int:
    """How many a token has: its own and those asked for."""
    return 1 + (vocab_size if num_logprobs == ALL_LOGPROBS else num_logprobs)


def _logprobs_violations(params: SamplingParams, bound: int, vocab_size: int) -> Iterator[Violation]:
    for field in ("logprobs", "prompt_logprobs"):
        asked = getattr(params, field)
        if asked == ALL_LOGPROBS and bound < vocab_size:
            yield Violation(field, f"must be in [0, {bound}], got -1: all of them are not allowed here (max_logprobs)")
        elif asked is not None and not ALL_LOGPROBS <= asked <= bound:
            yield Violation(field, f"must be in [0, {bound}], got {asked}")
    yield from _logprob_token_violations(params)


def _logprob_token_violations(params: SamplingParams) -> Iterator[Violation]:
    if params.logprob_token_ids is None:
        return
    count = len(params.logprob_token_ids)
    if count > MAX_LOGPROB_TOKEN_IDS:
        yield Violation("logprob_token_ids", f"must have at most {MAX_LOGPROB_TOKEN_IDS} token ids, got {count}")
    elif params.logprobs is not None and params.logprobs != count:
        yield Violation(
            "logprob_token_ids", f"must have as many token ids as logprobs ({params.logprobs}), got {count}"
        )


def _token_id_violations(params: SamplingParams, vocab_size: int) -> Iterator[Violation]:
    if params.allowed_token_ids is not None and not params.allowed_token_ids:
        yield Violation("allowed_token_ids", "must not be an empty list: no token could be chosen")
    yield from _bias_violations(params.logit_bias or {})
    yield from _bad_words_violations(params.bad_words_token_ids or [], vocab_size)
    lists: dict[str, Collection[int] | None] = {
        "stop_token_ids": params.stop_token_ids,
        "allowed_token_ids": params.allowed_token_ids,
        "logit_bias": params.logit_bias,
        "logprob_token_ids": params.logprob_token_ids,
        "all_stop_token_ids": params.all_stop_token_ids,
        "eos_token_id": None if params.eos_token_id is None else [params.eos_token_id],
    }
    for field, token_ids in lists.items():
        if len(token_ids or ()) > vocab_size:
            yield Violation(field, f"must have at most {vocab_size} token ids, got {len(token_ids or ())}")
        else:
            yield from _outside_vocabulary(field, token_ids or (), vocab_size)


def _bias_violations(biases: dict[int, float]) -> Iterator[Violation]:
    # NaN fails this comparison too.
    too_large = next((item for item in biases.items() if not abs(item[1]) <= MAX_LOGIT_BIAS), None)
    if too_large is not None:
        token_id, bias = too_large
        bound = f"[-{MAX_LOGIT_BIAS:g}, {MAX_LOGIT_BIAS:g}]"
        yield Violation(f"logit_bias[{token_id}]", f"must be in {bound}, got {bias}")


def _bad_words_violations(words: list[list[int]], vocab_size: int) -> Iterator[Violation]:
    field = "bad_words_token_ids"
    if len(words) > MAX_BAD_WORDS:
        yield Violation(field, f"must have at most {MAX_BAD_WORDS} words, got {len(words)}")
    elif not all(words):
        yield Violation(field, "must not hold an empty word")
    else:
        yield from _outside_vocabulary(field, chain.from_iterable(words), vocab_size)


def _outside_vocabulary(field: str, token_ids: Iterable[int], vocab_size: int) -> Iterator[Violation]:
    outside = next((token_id for token_id in token_ids if not 0 <= token_id < vocab_size), None)
    if outside is not None:
        yield Violation(field, f"token ids must be in [0, {vocab_size - 1}], got {outside}")
