"""How to choose tokens: from what the client set, what the model declares, and the defaults, in this order."""

import math
from collections.abc import Iterable, Iterator

from google.protobuf.message import Message

from core.wire.sampling_params import (
    MAX_LOGPROB_ENTRIES,
    MAX_LOGPROBS,
    MAX_N,
    RepetitionDetection,
    SamplingParams,
    Violation,
    find_scored_prompt_violations,
    find_violations,
    num_logprob_entries,
)
from service.errors import InvalidRequest
from service.generation_request import UNSEEDED, StopRules
from service.served_model import ServedModel
from service.structured_output import read_structured_output
from service.text.tokenizer import Tokenizer
from sluicegate.v1 import sampling_params_pb2 as pb

MAX_LOGIT_BIAS = 100.0
MAX_STOP_STRINGS = 64
MAX_STOP_STRING_BYTES = 1024
MAX_BAD_WORDS = 1024
MAX_BAD_WORD_BYTES = 1024
MAX_LISTED_TOKENS = 2**18
"""In all token lists of a request, each of its n sequences counted: every sequence gets its own copy."""

_SCALARS = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "max_tokens",
    "min_tokens",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "ignore_eos",
    "logprobs",
    "prompt_logprobs",
)
_OWN_NAMES = {"bad_words_token_ids": "bad_words"}
_NOT_OWN_FIELDS = ("all_stop_token_ids", "eos_token_id")
"""They hold stop_token_ids once more, and the model's own."""


def check_lists(given: Message) -> None:
    """Raises InvalidRequest for SamplingParams, of whatever API, with a list too long to be worth a look into it.

    To copy one of a million entries would let no other thread run meanwhile. What is shorter is checked with the rest.
    """
    lists = [field.name for field, _ in given.ListFields() if field.is_repeated]
    sizes = {name: len(getattr(given, name)) for name in lists}
    bound = f"must have at most {MAX_LISTED_TOKENS} entries"
    if found := [
        Violation(f"sampling_params.{name}", f"{bound}, got {size}")
        for name, size in sizes.items()
        if size > MAX_LISTED_TOKENS
    ]:
        raise InvalidRequest(found)


def read_sampling_params(
    given: pb.SamplingParams, model: ServedModel, num_prompt_tokens: int, violations: list[Violation]
) -> SamplingParams:
    """What the core gets. What is wrong is added to ``violations``. ``num_prompt_tokens`` 0: the prompt is wrong."""
    fields = {field.name: value for field, value in given.ListFields() if field.name in _SCALARS}
    params = SamplingParams(**{"max_tokens": None, **model.generation_config.sampling, **fields})
    if params.max_tokens is not None and not given.HasField("max_tokens"):
        params.max_tokens = max(params.max_tokens, params.min_tokens)
    params.seed = None if params.seed == UNSEEDED else params.seed
    params.logit_bias = {token_id: _clamp(bias) for token_id, bias in given.logit_bias.items()} or None
    params.logprob_token_ids = list(given.logprob_token_ids) or None
    params.allowed_token_ids = _unique(given.allowed_token_ids) or None
    params.bad_words_token_ids = _read_bad_words(given.bad_words, model.tokenizer, violations) or None
    _set_stop_token_ids(params, _unique(given.stop_token_ids), model.generation_config.eos_token_ids)
    if given.HasField("repetition_detection"):
        params.repetition_detection = _read_repetition(given.repetition_detection)
    if params.prompt_logprobs is not None or given.skip_reading_prefix_cache:
        params.skip_reading_prefix_cache = True
    faults = find_violations(params, model.vocab_size, model.max_logprobs)
    found = [fault for fault in faults if fault.field not in _NOT_OWN_FIELDS]
    found += _copies_violations(params)
    params.structured_outputs = read_structured_output(given, params.n, violations)
    if num_prompt_tokens and not found:
        found += _fit_into_context(params, model.max_model_len - num_prompt_tokens)
        found += _logprobs_violations(params, model.vocab_size)
        found += find_scored_prompt_violations(params, model.vocab_size, num_prompt_tokens)
    violations += [Violation(f"sampling_params.{_OWN_NAMES.get(field, field)}", text) for field, text in found]
    params.top_k = max(params.top_k, 0)
    return params


def _logprobs_violations(params: SamplingParams, vocab_size: int) -> Iterator[Violation]:
    """More than what every server gives may fill the memory while a client reads slowly."""
    if params.logprobs is None or 0 <= params.logprobs <= MAX_LOGPROBS:
        return
    entries = params.n * num_logprob_entries(params.logprobs, vocab_size)
    if (params.max_tokens or 0) * entries > MAX_LOGPROB_ENTRIES:
        bound = f"must be at most {MAX_LOGPROB_ENTRIES // entries} with n {params.n} and logprobs {params.logprobs}"
        yield Violation("max_tokens", f"{bound}, got {params.max_tokens}")


def _copies_violations(params: SamplingParams) -> Iterator[Violation]:
    lists = (params.logit_bias, params.allowed_token_ids, params.stop_token_ids, params.all_stop_token_ids)
    num_listed = sum(len(tokens or ()) for tokens in lists) + sum(map(len, params.bad_words_token_ids or ()))
    if 1 < params.n <= MAX_N and params.n * num_listed > MAX_LISTED_TOKENS:
        bound = f"must be at most {max(MAX_LISTED_TOKENS // num_listed, 1)} with {num_listed} tokens in the lists"
        yield Violation("n", f"{bound} of sampling_params, got {params.n}")


def _fit_into_context(params: SamplingParams, num_left: int) -> Iterator[Violation]:
    """Let ``max_tokens`` end with the context, of which the prompt has left ``num_left`` tokens."""
    params.max_tokens = min(params.max_tokens or num_left, num_left)
    if params.min_tokens > num_left:
        bound = f"what the prompt leaves of max_model_len ({num_left})"
        yield Violation("min_tokens", f"must be at most {bound}, got {params.min_tokens}")


def read_stop_rules(given: pb.SamplingParams, violations: list[Violation]) -> StopRules:
    """What the gateway watches for. What is wrong is added to ``violations``."""
    violations += [Violation("sampling_params.stop", description) for description in _stop_faults(given.stop)]
    return StopRules(tuple(given.stop), frozenset(given.stop_token_ids), given.include_stop_str_in_output)


def _set_stop_token_ids(params: SamplingParams, asked: list[int], eos_token_ids: tuple[int, ...]) -> None:
    """The core ends a sequence at ``eos_token_id`` and at ``stop_token_ids``, and masks all of them for min_tokens."""
    params.all_stop_token_ids = _unique([*eos_token_ids, *asked])
    if params.ignore_eos:
        params.stop_token_ids = asked or None
        return
    params.eos_token_id = next(iter(eos_token_ids), None)
    params.stop_token_ids = _unique([*asked, *eos_token_ids[1:]]) or None


def _read_repetition(given: pb.RepetitionDetection) -> RepetitionDetection:
    return RepetitionDetection(given.max_pattern_size, given.min_pattern_size, given.min_count)


def _clamp(bias: float) -> float:
    """As vLLM's front end does. What is not finite stays, to be refused."""
    return max(-MAX_LOGIT_BIAS, min(bias, MAX_LOGIT_BIAS)) if math.isfinite(bias) else bias


def _stop_faults(stops: Iterable[str]) -> Iterator[str]:
    stops = list(stops)
    if len(stops) > MAX_STOP_STRINGS:
        yield f"must have at most {MAX_STOP_STRINGS} strings, got {len(stops)}"
    if "" in stops:
        yield "must not hold an empty string"
    longest = max((len(stop.encode()) for stop in stops), default=0)
    if longest > MAX_STOP_STRING_BYTES:
        yield f"each string must have at most {MAX_STOP_STRING_BYTES} bytes, got one of {longest}"


def _read_bad_words(words: Iterable[str], tokenizer: Tokenizer, violations: list[Violation]) -> list[list[int]]:
    words = list(words)
    if len(words) > MAX_BAD_WORDS:
        bound = f"must have at most {MAX_BAD_WORDS} strings, got {len(words)}"
        violations.append(Violation("sampling_params.bad_words", bound))
        return []
    wrong = next((size for word in words if not 1 <= (size := len(word.encode())) <= MAX_BAD_WORD_BYTES), None)
    if wrong is not None:
        bound = f"each string must have 1 to {MAX_BAD_WORD_BYTES} bytes, got one of {wrong}"
        violations.append(Violation("sampling_params.bad_words", bound))
        return []
    found: list[list[int]] = []
    num_tokens = 0
    for index, word in enumerate(words):
        spellings = [token_ids for token_ids in _spellings(word, tokenizer) if token_ids]
        found += spellings
        num_tokens += sum(map(len, spellings))
        if num_tokens > MAX_LISTED_TOKENS:
            bound = f"must have at most {MAX_LISTED_TOKENS} tokens together"
            violations.append(Violation("sampling_params.bad_words", f"{bound}, got more at {index}"))
            return []
    return found


def _spellings(word: str, tokenizer: Tokenizer) -> Iterator[list[int]]:
    """The word as a text begins with it and, if that is as long and begins otherwise, as it stands after a space.

    After vLLM's SamplingParams.update_from_tokenizer.
    """
    word = word.lstrip() or word
    bare = tokenizer.encode(word, add_special_tokens=False)
    spaced = tokenizer.encode(" " + word, add_special_tokens=False)
    yield bare
    if len(spaced) == len(bare) and spaced[:1] != bare[:1]:
        yield spaced


def _unique(token_ids: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(token_ids))
