"""Why a request cannot go on with what a step gave it."""

from typing import NamedTuple

from core.executor.interface import ModelRunnerOutput
from core.request import Request
from core.wire.messages import REFUSED

_NO_POSSIBLE_TOKEN = "no token is possible: allowed_token_ids, bad words, min_tokens and the grammar rule out every one"


class Fault(NamedTuple):
    """``is_the_models``: its keys and values may be what is wrong, so that nobody shall find them."""

    cause: str
    num_nans: int = 0
    is_the_models: bool = True


def find_fault(request: Request, result: ModelRunnerOutput, vocab_size: int) -> Fault | None:
    """For a request that ``result`` has tokens of."""
    if num_nans := result.num_nans_in_logits.get(request.request_id, 0):
        return Fault(f"{num_nans} NaN in its logits", num_nans)
    for token_id in result.sampled_token_ids[request.request_id]:
        if not 0 <= token_id < vocab_size:
            return Fault(f"sampled token id {token_id} outside [0, {vocab_size - 1}]")
    if request.request_id not in result.no_possible_token:
        return None
    cause = (request.constraint.fault if request.constraint is not None else None) or _NO_POSSIBLE_TOKEN
    # It is what the request asks for that rules out all of them, however far it has come.
    return Fault(REFUSED + cause, is_the_models=False)
