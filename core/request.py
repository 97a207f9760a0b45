"""One request as the engine sees it, from the input thread to its last token."""

import enum
import hashlib
import math
import time

from core.block_hash import BlockHash
from core.block_pool import Block
from core.draft_history import DraftHistory
from core.lora.adapter import Adapter
from core.prompt_embeds import PromptEmbeds, prompt_tokens
from core.repetition import Repetition
from core.structured_output.constraint import Constraint
from core.wire.messages import EngineCoreEvent, EngineCoreRequest, EventType, FinishReason, PrefillStats
from core.wire.resume import resume_of
from core.wire.sampling_params import SamplingParams

_SEED_BITS = 63
"""Seeds stay non-negative in a signed 64-bit integer, which is what model runners compute with."""


class RequestStatus(enum.Enum):
    WAITING = enum.auto()
    WAITING_FOR_GRAMMAR = enum.auto()
    RUNNING = enum.auto()
    PREEMPTED = enum.auto()
    FINISHED = enum.auto()


class Request:
    """A checked request and its progress. The input thread makes it; from then on the busy loop owns it.

    ``max_num_tokens`` bounds prompt plus output: the engine's limit, or ``max_tokens`` if that comes first.
    ``num_computed_tokens`` counts the tokens whose keys and values are in its blocks; ``num_scheduled_tokens`` counts
    those of the steps in flight as well, which have not said yet what they compute. ``block_tables`` has one table for
    each group of layers, all with room for ``num_slots`` tokens; a waiting request has none.
    ``token_ids`` has a placeholder where ``embeds`` has the input. ``arrival_number`` is the scheduler's: the requests
    that came to it before. ``flowing_since`` is too: those that had come when its answer was in full flow, None before.
    """

    __slots__ = (
        "abort_immediately",
        "adapter",
        "arrival_number",
        "arrival_time",
        "block_hashes",
        "block_tables",
        "cache_root",
        "cache_salt",
        "client_index",
        "constraint",
        "draft_history",
        "embeds",
        "eos_token_id",
        "events",
        "finish_reason",
        "flowing_since",
        "lora_request",
        "max_num_tokens",
        "name",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_remembered_blocks",
        "num_scheduled_tokens",
        "num_slots",
        "prefill_reported",
        "priority",
        "repetition",
        "request_id",
        "sampling_params",
        "seed",
        "status",
        "stop_token_ids",
        "token_ids",
        "trace_headers",
    )

    def __init__(
        self, message: EngineCoreRequest, params: SamplingParams, engine_seed: int, max_num_tokens: int
    ) -> None:
        self.request_id = message.request_id
        self.client_index = message.client_index
        self.trace_headers = message.trace_headers
        self.name = message.external_req_id or message.request_id
        """As the log calls it, and the front end's log too."""
        self.priority = message.priority
        # What is no time at all has no place among times.
        self.arrival_time = math.inf if math.isnan(message.arrival_time) else message.arrival_time
        self.arrival_number = 0
        self.flowing_since: int | None = None
        self.sampling_params = params
        resume = resume_of(params)
        seed_id = message.request_id if resume is None else resume.request_id
        self.seed = choose_seed(params.seed, engine_seed, seed_id)
        self.eos_token_id = params.eos_token_id
        self.stop_token_ids = frozenset(params.stop_token_ids or ())

        self.token_ids = prompt_tokens(message)
        self.embeds = PromptEmbeds.of(message)
        self.num_prompt_tokens = len(self.token_ids)
        wanted = self.num_prompt_tokens + params.max_tokens if params.max_tokens is not None else max_num_tokens
        self.max_num_tokens = min(wanted, max_num_tokens)
        if resume is not None:
            self.token_ids += resume.output_token_ids
        self.repetition: Repetition | None = None
        if params.repetition_detection is not None and params.repetition_detection.max_pattern_size > 0:
            self.repetition = Repetition(params.repetition_detection, self.max_num_tokens - self.num_prompt_tokens)
        self.abort_immediately = message.abort_immediately
        self.lora_request = message.lora_request
        self.adapter: Adapter | None = None
        """From when it is added until it ends."""
        self.constraint: Constraint | None = None

        self.status = RequestStatus.WAITING
        self.finish_reason: FinishReason | None = None
        self.events: list[EngineCoreEvent] = []
        self.num_preemptions = 0
        self.prefill_reported = self.num_output_tokens > 0  # Of a request that another core began.

        self.num_computed_tokens = 0
        self.num_scheduled_tokens = 0
        self.num_cached_tokens = 0
        self.draft_history: DraftHistory | None = None
        self.block_tables: list[list[Block]] = []
        self.num_slots = 0
        self.cache_salt = message.cache_salt
        self.cache_root: BlockHash = b""
        self.block_hashes: list[BlockHash] = []
        self.num_remembered_blocks = 0

    def __repr__(self) -> str:
        progress = f"{self.num_computed_tokens}/{self.num_tokens} tokens computed, {self.num_prompt_tokens} of prompt"
        return f"Request({self.request_id!r}, {self.status.name}, {progress})"

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def is_running(self) -> bool:
        return self.status is RequestStatus.RUNNING

    @property
    def has_settled_grammar(self) -> bool:
        """Whether it is known if there is the one that it asks for."""
        return self.constraint is not None and self.constraint.is_settled

    @property
    def num_output_placeholders(self) -> int:
        """Tokens that the steps in flight will give: each that reaches the last known token gives one."""
        return max(self.num_scheduled_tokens + 1 - self.num_tokens, 0)

    @property
    def num_due_tokens(self) -> int:
        """Tokens to compute next; 0 if what is in flight surely brings the request to its end.

        0 too while a grammar does not know what may come next, which with a step in flight it never does.
        """
        if self.constraint is not None and (self.num_output_placeholders or not self.constraint.is_ready):
            return 0
        num_expected_tokens = self.num_tokens + self.num_output_placeholders
        return num_expected_tokens - self.num_scheduled_tokens if num_expected_tokens < self.max_num_tokens else 0

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def prompt_token_ids(self) -> list[int]:
        return self.token_ids[: self.num_prompt_tokens]

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    def record(self, event: EventType) -> None:
        self.events.append(EngineCoreEvent(event, time.monotonic()))

    def take_events(self) -> list[EngineCoreEvent] | None:
        """What happened since the last output, or None."""
        events, self.events = self.events, []
        return events or None

    def take_prefill_stats(self) -> PrefillStats | None:
        """The token counts of the prefill, once."""
        if self.prefill_reported:
            return None
        self.prefill_reported = True
        return PrefillStats(
            num_prompt_tokens=self.num_prompt_tokens,
            num_computed_tokens=self.num_prompt_tokens - self.num_cached_tokens,
            num_cached_tokens=self.num_cached_tokens,
            num_local_cached_tokens=self.num_cached_tokens,
        )


def choose_seed(own_seed: int | None, engine_seed: int, request_id: str) -> int:
    """The seed of a request's draws, in [0, 2**63). Without its own (None or -1) it follows from its id.

    So a request that is sent again under its id, to this core or to its successor, draws the same tokens again.
    """
    if own_seed is None or own_seed == -1:
        text = f"{engine_seed}:{request_id}".encode("utf-8", "surrogatepass")
        own_seed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return own_seed % (1 << _SEED_BITS)
