"""What happens to a request on its way, in the gateway's own terms; each API's servicer puts it into its messages."""

import msgspec

from core.wire.messages import LogprobsLists, LogprobsTensors
from service.sequence import SequenceFinish


class Started(msgspec.Struct, frozen=True, gc=False):
    """The prompt has been computed."""

    num_prompt_tokens: int
    num_cached_tokens: int
    prompt_token_ids: list[int]
    """Empty unless asked for."""
    prompt_logprobs: LogprobsTensors | None
    scores_all: bool = False
    """The log-probabilities are of the whole vocabulary."""


class Delta(msgspec.Struct, frozen=True, gc=False):
    """More of sequence ``index``; ``text`` and ``token_ids`` are empty unless asked for."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: LogprobsLists | None
    scores_all: bool = False
    """The log-probabilities are of the whole vocabulary."""


class Finished(msgspec.Struct, frozen=True, gc=False):
    """Sequence ``index`` ended."""

    index: int
    finish: SequenceFinish
    num_prompt_tokens: int
    num_cached_tokens: int


Event = Started | Delta | Finished
