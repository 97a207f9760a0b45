"""One request as the gateway works with it, whatever API it came by: checked, complete, immutable."""

from dataclasses import dataclass

import msgspec

from core.wire.messages import LoRARequest
from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor

_TOKENS_PER_BIAS = 3
"""An entry of a dict with its number takes as much memory as so many entries of a list."""
UNSEEDED = -1
"""As a seed, vLLM and the core take it for none."""


@dataclass(frozen=True, slots=True)
class StopRules:
    """What ends a sequence beside the end-of-sequence token, as the client asked for it."""

    strings: tuple[str, ...] = ()
    token_ids: frozenset[int] = frozenset()
    include_in_output: bool = False
    """Leave what ended the sequence in its text."""


@dataclass(frozen=True, slots=True)
class OutputChoices:
    """What the client wants back."""

    text: bool = True
    token_ids: bool = False
    skip_special_tokens: bool = True
    echo_prompt_token_ids: bool = False


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """``sampling_params`` is what the core gets, ``n`` included; ``stop`` and ``output`` stay in the gateway.

    The prompt is ``prompt_token_ids`` or, if they are given, ``prompt_embeds`` [num_tokens, hidden_size].
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    stop: StopRules = StopRules()
    output: OutputChoices = OutputChoices()
    priority: int = 0
    cache_salt: str | None = None
    data_parallel_rank: int | None = None
    prompt_embeds: Tensor | None = None
    lora: LoRARequest | None = None
    may_differ: bool = False
    """After the loss of a core: better other tokens than there would have been than none."""
    reasoning_ended: bool | None = None
    """True: a form of the output counts from the first token, whatever reasoning parser the core has."""

    @property
    def num_prompt_tokens(self) -> int:
        """Rows count as tokens."""
        return len(self.prompt_token_ids) if self.prompt_embeds is None else len(self.prompt_embeds.array)

    @property
    def num_sequences(self) -> int:
        return self.sampling_params.n

    @property
    def num_listed_tokens(self) -> int:
        """In the token lists of its sampling parameters, by the memory they take."""
        params = self.sampling_params
        lists = (params.allowed_token_ids, params.stop_token_ids, params.all_stop_token_ids, params.logprob_token_ids)
        num_listed = sum(len(tokens or ()) for tokens in lists) + len(self.stop.token_ids)
        num_listed += sum(map(len, params.bad_words_token_ids or ()))
        return num_listed + _TOKENS_PER_BIAS * len(params.logit_bias or ())

    @property
    def num_embeds_bytes(self) -> int:
        """What the core gets of rows, for all sequences."""
        return 0 if self.prompt_embeds is None else self.sampling_params.n * self.prompt_embeds.array.nbytes

    @property
    def fills_kv_cache(self) -> bool:
        """It stays there until the last sequence has ended."""
        return True

    def sequence_params(self, index: int) -> SamplingParams:
        """What the core gets for the ``index``-th of the ``n`` sequences: one sequence, and a seed of its own."""
        params = self.sampling_params
        if params.n == 1:
            return params
        return msgspec.structs.replace(params, n=1, seed=_child_seed(params.seed, index))


def _child_seed(seed: int | None, index: int) -> int | None:
    """``seed + index``, but for the one value that would mean no seed."""
    if seed is None:
        return None
    return seed + index + (seed < UNSEEDED <= seed + index)
