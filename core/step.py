"""One step as the scheduler makes it: work for the executor, and whom the result is for."""

import math
from itertools import zip_longest
from typing import NamedTuple

from core.executor.interface import CachedRequest, NewRequest, SchedulerOutput
from core.request import Request


class Share(NamedTuple):
    """What a step computes of one request. ``num_preemptions``: how often that had lost its blocks by then.

    The last ``num_draft_tokens`` of ``num_tokens`` are guesses.
    """

    request: Request
    num_tokens: int
    num_preemptions: int
    num_draft_tokens: int = 0

    @property
    def is_stale(self) -> bool:
        """Whether the request has ended or lost its blocks since: what the step gives it is for nobody."""
        return not self.request.is_running or self.request.num_preemptions != self.num_preemptions

    @property
    def is_decode(self) -> bool:
        """Whether it is one token, but for the guesses."""
        return self.num_tokens - self.num_draft_tokens == 1


class Step:
    """The scheduler fills it, with at most ``budget`` tokens. Once started it does not change any more."""

    def __init__(self, budget: int) -> None:
        self.work = SchedulerOutput([], [], {}, [])
        self.shares: list[Share] = []
        self.constrained: list[Request] = []
        """Those of the requests that follow a grammar and get a token."""
        self.budget = budget
        self._first_newcomer: float = math.inf
        self._newcomer_budget: float = math.inf

    def __repr__(self) -> str:
        return f"Step({self.work.num_scheduled_tokens}, {self.budget} tokens left)"

    @property
    def num_decode_tokens(self) -> int:
        """Guesses too."""
        return sum(share.num_tokens for share in self.shares if share.is_decode)

    @property
    def num_prefill_tokens(self) -> int:
        return sum(share.num_tokens for share in self.shares if not share.is_decode)

    def limit_newcomers(self, first: int, budget: float) -> None:
        """Compute at most ``budget`` tokens of all requests whose arrival number is ``first`` or more.

        That is for prefill: each request that has one token to compute may have it.
        """
        self._first_newcomer, self._newcomer_budget = first, budget

    def room_for(self, request: Request) -> int:
        """How many of the tokens that ``request`` is due it may have."""
        num_tokens = min(request.num_due_tokens, self.budget)
        return num_tokens if not self._is_limited(request) else int(min(num_tokens, self._newcomer_budget))

    def begin(self, request: Request) -> None:
        """Compute the first tokens of a request that the executor does not know."""
        new = NewRequest(
            request_id=request.request_id,
            token_ids=request.token_ids.copy(),
            num_prompt_tokens=request.num_prompt_tokens,
            sampling_params=request.sampling_params,
            seed=request.seed,
            block_ids=[[block.block_id for block in table] for table in request.block_tables],
            num_computed_tokens=request.num_scheduled_tokens,
            embeds=request.embeds,
            lora=request.adapter.key if request.adapter is not None else None,
        )
        self.work.new_requests.append(new)
        self._compute(request, self.room_for(request))

    def go_on(self, request: Request, num_tokens: int, new_block_ids: list[list[int]]) -> None:
        """Compute ``num_tokens`` more of a request that the executor knows."""
        self.work.cached_requests.append(CachedRequest(request.request_id, new_block_ids, request.num_scheduled_tokens))
        self._compute(request, num_tokens)

    @property
    def known_shares(self) -> list[Share]:
        """Those of requests that the executor knows: the first ones."""
        return self.shares[: len(self.work.cached_requests)]

    def add_draft(self, position: int, draft_token_ids: list[int], new_block_ids: list[list[int]]) -> None:
        """Compute ``draft_token_ids`` too, for the known share at ``position``."""
        share, cached = self.shares[position], self.work.cached_requests[position]
        num_tokens = share.num_tokens + len(draft_token_ids)
        self.shares[position] = share._replace(num_tokens=num_tokens, num_draft_tokens=len(draft_token_ids))
        self.work.draft_token_ids[cached.request_id] = draft_token_ids
        self.work.num_scheduled_tokens[cached.request_id] = num_tokens
        both = zip_longest(cached.new_block_ids, new_block_ids, fillvalue=())
        cached.new_block_ids = [[*ids, *more] for ids, more in both]
        self.budget -= len(draft_token_ids)
        share.request.num_scheduled_tokens += len(draft_token_ids)

    def _is_limited(self, request: Request) -> bool:
        return request.arrival_number >= self._first_newcomer and request.num_due_tokens > 1

    def _compute(self, request: Request, num_tokens: int) -> None:
        if self._is_limited(request):
            self._newcomer_budget -= num_tokens
        self.work.num_scheduled_tokens[request.request_id] = num_tokens
        self.shares.append(Share(request, num_tokens, request.num_preemptions))
        self.budget -= num_tokens
        request.num_scheduled_tokens += num_tokens
        if request.constraint is not None and request.num_output_placeholders:
            self.constrained.append(request)
