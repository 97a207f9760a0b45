"""One core as the gateway knows it: what it said of itself, what it is busy with, whether it is there."""

import time
from collections.abc import Iterable, Sequence

import msgspec

from core.wire.codec import Encoder, WireError
from core.wire.handshake import engine_identity
from core.wire.messages import EngineCoreOutputs, EngineReadyResponse
from service.cores.engine_stats import EngineStats
from service.cores.pulse import Pulse
from service.errors import Unavailable

_MAX_SIZE = 2**31 - 1


class Engine:
    """The core of ``rank``. Owned by the event loop; whoever is on it may read.

    ``response`` is None until the core is ready, ``lost_because`` until it is gone. A core that took another's place
    has everything of its own but the rank; until it comes, the place ``is_awaited``.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.identity = engine_identity(rank)
        self.encoder = Encoder()
        """Of what is sent to it."""
        self.response: EngineReadyResponse | None = None
        self.connection: int | None = None
        """Number of the connection that its messages come on and that requests go to."""
        self.farewell: str | None = None
        """Why it is gone, while its last words may still come in."""
        self.lost_because: str | None = None
        self.is_awaited = False
        """It is gone, and another is to come in its place."""
        self.is_settling = False
        """It is there, but not told yet all that its predecessor had been."""
        self.is_leaving = False
        """It is there, but shuts down."""
        self.was_useful = False
        """It has given some request something."""
        self.refusal: str | None = None
        """Why one that came in its place was sent away."""
        self.lost_at = 0.0
        """By the monotonic clock: when the last one was."""
        self.incarnation = 0
        """Which core of the rank it is, counted from 1."""
        self.stats = EngineStats()
        self.pulse = Pulse()
        self.heard_at: float | None = None
        """When its last message came, by the monotonic clock."""
        self.num_sent_since_stats = 0
        """Sequences that the last statistics do not know of yet."""

    def __repr__(self) -> str:
        return f"Engine({self.rank}, {self.state})"

    @property
    def state(self) -> str:
        """In a word or two, for people."""
        if self.lost_because is not None:
            return "awaited" if self.is_awaited else "lost"
        return "absent" if self.response is None else "silent" if self.pulse.is_silent else "ready"

    @property
    def is_alive(self) -> bool:
        """It was ready and is not lost; it may be silent."""
        return self.response is not None and self.lost_because is None

    @property
    def is_gone_for_good(self) -> bool:
        """It is lost, and none is to come in its place."""
        return self.lost_because is not None and not self.is_awaited

    @property
    def answers(self) -> bool:
        """It can be asked."""
        return self.is_alive and not self.pulse.is_silent

    @property
    def num_waiting(self) -> int:
        """Sequences that do not run yet, those on their way to it included."""
        scheduler = self.stats.scheduler
        return scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs + self.num_sent_since_stats

    @property
    def takes_requests(self) -> bool:
        """It can be given work."""
        return self.answers and not self.is_settling and not self.is_leaving

    @property
    def is_coming(self) -> bool:
        """It takes no requests, but it, or one in its place, soon will."""
        return self.is_awaited or (self.is_alive and (self.is_settling or self.is_leaving))

    @property
    def load(self) -> int:
        """How busy it is: four for each sequence that waits, one for each that runs."""
        return 4 * self.num_waiting + self.stats.scheduler.num_running_reqs

    def record(self, outputs: EngineCoreOutputs) -> None:
        """Take in the statistics of a message."""
        self.heard_at = time.monotonic()
        self.stats.record(outputs)
        self.was_useful = self.was_useful or bool(outputs.outputs)
        if outputs.scheduler_stats is not None:
            self.num_sent_since_stats = 0

    def lose(self, reason: str, *, is_awaited: bool) -> None:
        """The core is gone."""
        self.lost_because = self.farewell = reason
        self.is_awaited, self.is_settling, self.is_leaving = is_awaited, False, False
        self.connection = self.refusal = None
        self.lost_at = time.monotonic()
        self.stats.forget_load()

    def check_can_stand_in(self, response: EngineReadyResponse) -> None:
        """Raises WireError if one that says ``response`` of itself cannot do what is served."""
        if self.response is not None and not _can_stand_in(response, self.response):
            raise WireError(f"{response} can less than what it stands in for: {self.response}")

    def introduce(self, response: EngineReadyResponse, connection: int | None) -> None:
        """The core is ready, maybe in the place of another."""
        self.response, self.connection = response, connection
        self.lost_because = self.farewell = self.refusal = None
        self.is_awaited = self.was_useful = False
        self.incarnation += 1
        self.stats.forget_load()
        self.pulse = Pulse()
        self.num_sent_since_stats = 0


def checked(response: EngineReadyResponse) -> EngineReadyResponse:
    """``response``. Raises WireError for a size that no engine can have: everything here counts with them."""
    for field in ("max_model_len", "num_gpu_blocks", "block_size", "data_parallel_size"):
        _check_size(field, getattr(response, field), _MAX_SIZE)
    if response.kv_cache_size_tokens is not None:
        _check_size("kv_cache_size_tokens", response.kv_cache_size_tokens, _MAX_SIZE * _MAX_SIZE)
    return response


def combined(responses: Sequence[EngineReadyResponse]) -> EngineReadyResponse:
    """What cores say of themselves, as if they were one: memories are added, of limits the lowest counts."""
    if len(responses) == 1:  # which may be of a larger group that others serve
        return msgspec.structs.replace(responses[0], data_parallel_size=1)
    sizes = [response.kv_cache_size_tokens or response.num_gpu_blocks * response.block_size for response in responses]
    return msgspec.structs.replace(
        responses[0],
        max_model_len=min(response.max_model_len for response in responses),
        num_gpu_blocks=sum(response.num_gpu_blocks for response in responses),
        kv_cache_size_tokens=sum(sizes),
        kv_cache_max_concurrency=None,
        data_parallel_size=len(responses),
    )


def why_unavailable(engines: Iterable[Engine]) -> Unavailable:
    """Why none of ``engines`` takes anything on."""
    engines = [*engines]
    reasons = [engine.lost_because for engine in engines if engine.lost_because is not None]
    if any(engine.is_coming for engine in engines):
        reason = reasons[0] if reasons else "it comes back" if any(e.is_settling for e in engines) else "it shuts down"
        return Unavailable(f"the engine core is being replaced: {reason}", reason="CORE_RESTARTING")
    if not reasons and any(engine.pulse.is_silent for engine in engines):
        return Unavailable("the engine core does not answer", reason="CORE_SILENT")
    reason = reasons[0] if reasons else "no core is connected"
    return Unavailable(f"the engine core is gone: {reason}", reason="CORE_LOST")


def max_cached_tokens(response: EngineReadyResponse) -> int:
    """What the KV cache holds for one request alone: all blocks but the null block, which the sizes told include."""
    num_tokens = response.kv_cache_size_tokens or response.num_gpu_blocks * response.block_size
    return num_tokens - response.block_size


def max_num_tokens(response: EngineReadyResponse) -> int:
    """Of prompt and output of one request. The last token needs no place in the KV cache."""
    return min(response.max_model_len, max_cached_tokens(response) + 1)


def _can_stand_in(response: EngineReadyResponse, served: EngineReadyResponse) -> bool:
    """Requests are checked against what the first said.

    Not so the KV cache: a core that sizes it by the memory it finds has more or less of it whenever it starts. Better
    that requests which do not fit fail one by one than that all do.
    """
    return response.max_model_len >= served.max_model_len


def _check_size(field: str, size: int, bound: int) -> None:
    if not 1 <= size <= bound:
        raise WireError(f"EngineReadyResponse.{field}: must be in [1, {bound}], got {size}")
