"""What is taken on: how much may be live at once, and what is told to those for whom there is no room."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from service.admission.budget import Budget, Elsewhere, bounded_delay, nowhere
from service.errors import QueueFull, ResourceExhausted
from service.prompt_embeds import MAX_EMBEDS_BYTES

_MIN_ENDED = 8
"""Of late, to judge by: fewer say little of how fast sequences end."""
_HOPELESS_FACTOR = 2
"""The wait for one's turn is an estimate: beyond so many times what a call has left, it is clear enough."""


@dataclass(frozen=True)
class AdmissionLimits:
    """``max_sequences``: live at once. ``max_cached_tokens``: what the KV cache holds for one request alone.

    ``max_prompt_tokens``, ``max_embeds_bytes``: of the prompts and token lists, and of the prompt_embeds, of all live
    sequences together; each of the ``n`` sequences of a request counts, as the core gets the prompt of each.
    """

    max_sequences: int
    max_cached_tokens: int
    max_prompt_tokens: int
    max_embeds_bytes: int = MAX_EMBEDS_BYTES


NUM_BUDGETS = 3
"""Things that are bounded for all live requests together."""


class Load(Protocol):
    """What a request weighs."""

    @property
    def num_sequences(self) -> int: ...

    @property
    def num_prompt_tokens(self) -> int: ...

    @property
    def num_listed_tokens(self) -> int:
        """In the lists of its sampling parameters: they take as much memory as a prompt of so many."""

    @property
    def num_embeds_bytes(self) -> int: ...

    @property
    def fills_kv_cache(self) -> bool:
        """Whether its prompt must fit into the KV cache."""

    @property
    def priority(self) -> int:
        """Below 0: it may go before others."""


class Admission:
    """Counts what is live, between ``admit`` and ``release``. Owned by the event loop."""

    def __init__(
        self,
        limits: AdmissionLimits,
        num_waiting: Callable[[], int] = lambda: 0,
        elsewhere: Callable[[int], Elsewhere] = nowhere,
    ) -> None:
        """``num_waiting``: sequences at the cores that do not run yet.

        ``elsewhere``: what other processes hold that the limits are for too, of each of ``NUM_BUDGETS`` things.
        """
        self._num_waiting = num_waiting
        self._max_cached_tokens = limits.max_cached_tokens
        self._sequences = Budget(limits.max_sequences, elsewhere=elsewhere(0))
        self._prompt_tokens = Budget(limits.max_prompt_tokens, elsewhere=elsewhere(1))
        self._embeds_bytes = Budget(limits.max_embeds_bytes, elsewhere=elsewhere(2))

    def __repr__(self) -> str:
        return f"Admission({self.num_sequences} sequences, {self.num_prompt_tokens} prompt tokens)"

    @property
    def num_sequences(self) -> int:
        """That are live."""
        return self._sequences.held

    @property
    def num_prompt_tokens(self) -> int:
        """Of all live sequences, with those in their token lists."""
        return self._prompt_tokens.held

    def check_room(self, num_sequences: int) -> None:
        """Raises QueueFull unless so many more may be live."""
        budget = self._sequences
        if not budget.has_room(num_sequences):
            bound = f"{budget.held_by_all} of at most {budget.limit} sequences are live"
            raise QueueFull(
                f"{bound}, the request asks for {num_sequences}", retry_after_s=budget.refuse(num_sequences)
            )

    def admit(self, load: Load, time_remaining_s: float | None = None) -> None:
        """Count ``load`` until its ``release``. ``time_remaining_s`` None: its call has no deadline.

        Raises ResourceExhausted for what could never be taken on, and QueueFull for what can be when others have ended.
        """
        self._check_size(load)
        if time_remaining_s is not None and load.priority >= 0:
            self._check_deadline(time_remaining_s)
        self.check_room(load.num_sequences)
        self._check_prompt_tokens(_all_tokens(load))
        self._check_embeds(load.num_embeds_bytes)
        self._sequences.take(load.num_sequences)
        self._prompt_tokens.take(_all_tokens(load))
        self._embeds_bytes.take(load.num_embeds_bytes)

    def release(self, load: Load) -> None:
        """It has ended."""
        self._sequences.give_back(load.num_sequences)
        self._prompt_tokens.give_back(_all_tokens(load))
        self._embeds_bytes.give_back(load.num_embeds_bytes)

    def _check_size(self, load: Load) -> None:
        num_prompt_tokens, n = load.num_prompt_tokens, load.num_sequences
        if load.fills_kv_cache and num_prompt_tokens > self._max_cached_tokens:
            bound = f"the KV cache holds {self._max_cached_tokens} tokens"
            raise ResourceExhausted(f"{bound}, the prompt has {num_prompt_tokens}", reason="PROMPT_EXCEEDS_KV_CACHE")
        if n > self._sequences.limit:
            bound = f"at most {self._sequences.limit} sequences may be live at once"
            raise ResourceExhausted(f"{bound}, the request asks for {n}", reason="TOO_MANY_SEQUENCES")

    def _check_deadline(self, time_remaining_s: float) -> None:
        """The core would get the request, hold it, and drop it at the deadline, while it keeps others waiting."""
        num_waiting = self._num_waiting()
        if not num_waiting or self._sequences.num_given_back < _MIN_ENDED:
            return
        wait_s = num_waiting / self._sequences.drain_per_s
        if wait_s > _HOPELESS_FACTOR * time_remaining_s:
            text = f"{num_waiting} sequences wait, some {wait_s:.1f} s, and the call has {time_remaining_s:.1f} s left"
            delay_s = bounded_delay((wait_s - time_remaining_s) * (1 + random.random() / 4))
            raise QueueFull(text, retry_after_s=delay_s, reason="DEADLINE_HOPELESS")

    def _check_prompt_tokens(self, num_tokens: int) -> None:
        budget = self._prompt_tokens
        bound = f"prompts and token lists of live sequences may have {budget.limit} tokens together"
        if num_tokens > budget.limit:
            raise ResourceExhausted(f"{bound}, those of the request alone have {num_tokens}", reason="TOO_MANY_TOKENS")
        if not budget.has_room(num_tokens):
            text = f"{bound} and have {budget.held_by_all}, those of the request have {num_tokens}"
            raise QueueFull(text, retry_after_s=budget.refuse(num_tokens))

    def _check_embeds(self, num_bytes: int) -> None:
        budget = self._embeds_bytes
        bound = f"live sequences may hold {budget.limit} bytes of prompt_embeds together"
        if num_bytes > budget.limit:
            raise ResourceExhausted(f"{bound}, the request alone has {num_bytes}", reason="TOO_MANY_EMBEDS")
        if not budget.has_room(num_bytes):
            text = f"{bound} and hold {budget.held_by_all}, the request has {num_bytes}"
            raise QueueFull(text, retry_after_s=budget.refuse(num_bytes))


def _all_tokens(load: Load) -> int:
    return load.num_sequences * (load.num_prompt_tokens + load.num_listed_tokens)
