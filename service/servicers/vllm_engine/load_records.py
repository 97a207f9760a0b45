"""The load of the cores, as it goes out with KV events, so that a router need not ask for it.

Every batch has it. Where none comes, a record goes out by itself when the load has changed, and as a sign of life: once
a second, and every five seconds when nothing has changed for long.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from smg_grpc_proto.generated import common_pb2 as pb

from service.cores.engine import Engine
from service.gate import Backend
from service.servicers.vllm_engine.loads import scheduler_load

TICK_S = 0.1
"""How often to look whether something has changed."""
HEARTBEAT_S = 1.0
IDLE_HEARTBEAT_S = 5.0
_HEARTBEATS_UNTIL_IDLE = 2
_USAGE_STEP = 0.005
_RATE_STEP = 50.0
_RATE_RATIO = 0.05
"""What counts as a change of the KV usage, and of the tokens a second: either of both."""
_COUNTS = "running_requests", "waiting_requests", "waiting_uncached_tokens", "max_running_requests"
_DETAILS = "cache_hit_rate", "num_used_tokens", "max_total_num_tokens"
_MAX_UINT32 = 2**32 - 1


def engine_load(backend: Backend, engine: Engine) -> pb.EngineLoad:
    """As GetLoads has it, of one core."""
    load = scheduler_load(backend, engine)
    num_pending = backend.engine.requests.num_waiting_tokens(engine.rank, _MAX_UINT32)
    return pb.EngineLoad(
        running_requests=load.num_running_reqs,
        waiting_requests=load.num_waiting_reqs,
        waiting_uncached_tokens=load.num_waiting_uncached_tokens,
        token_usage=load.token_usage,
        gen_throughput=load.gen_throughput,
        max_running_requests=load.max_running_requests,
        cache_hit_rate=load.cache_hit_rate,
        num_used_tokens=load.num_used_tokens,
        max_total_num_tokens=load.max_total_num_tokens,
        prefill_pending_tokens=min(num_pending, _MAX_UINT32),
    )


class CoreLoads:
    """The loads of all cores of ``backend``, and how long each has been silent although it has something to do."""

    def __init__(self, backend: Backend, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend
        self._clock = clock
        self._busy_since: dict[int, float] = {}

    def __call__(self, rank: int) -> pb.EngineLoad:
        engine = self._backend.engine.engines.all[rank]
        load = engine_load(self._backend, engine)
        if not self._backend.engine.num_requests_at(rank):
            self._busy_since.pop(rank, None)
            return load
        now = self._clock()
        heard_at = max(self._busy_since.setdefault(rank, now), engine.heard_at or 0.0)
        load.engine_silence_ms = min(round(max(now - heard_at, 0.0) * 1000), _MAX_UINT32)
        return load


@dataclass
class _Told:
    """The last record of one core."""

    sequence_number: int
    load: pb.EngineLoad
    at: float
    num_idle: int = 0
    """Heartbeats in a row that told nothing new."""


class LoadRecords:
    """Of one subscriber. ``read`` gives the load of a rank; ``ranks`` get records before their first batch."""

    def __init__(
        self,
        read: Callable[[int], pb.EngineLoad],
        ranks: Sequence[int] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._clock = clock
        self._num_records = 0
        never = clock() - HEARTBEAT_S
        self._told = {rank: _Told(0, pb.EngineLoad(), never) for rank in ranks}
        self._next_look_at = 0.0

    def stamp(self, batch: pb.KvEventBatch) -> pb.KvEventBatch:
        """``batch`` with the load of its core. Details go with the first record, and with those that go alone."""
        load = self._read(batch.dp_rank)
        self._told[batch.dp_rank] = _Told(batch.sequence_number, load, self._clock())
        self._number(batch.load, load)
        if batch.load.sample > 1:
            for name in _DETAILS:
                batch.load.ClearField(name)
        return batch

    def due(self) -> Iterator[pb.KvEventBatch]:
        """What is to go out by itself now: batches without events, numbered as the last one of their core.

        Ask as often as you like: it looks at every live request, so it does that once a tick.
        """
        if (now := self._clock()) < self._next_look_at:
            return
        self._next_look_at = now + TICK_S
        for rank, told in self._told.items():
            load = self._read(rank)
            has_changed = _differs(told.load, load)
            interval_s = IDLE_HEARTBEAT_S if told.num_idle >= _HEARTBEATS_UNTIL_IDLE else HEARTBEAT_S
            if not has_changed and now - told.at < interval_s:
                continue
            told.load, told.at = load, now
            told.num_idle = 0 if has_changed else told.num_idle + 1
            batch = pb.KvEventBatch(sequence_number=told.sequence_number, timestamp=time.time(), dp_rank=rank)
            self._number(batch.load, load)
            batch.load.load_only = True
            yield batch

    def _number(self, record: pb.EngineLoad, load: pb.EngineLoad) -> None:
        self._num_records += 1
        record.CopyFrom(load)
        record.sample = self._num_records


def _differs(old: pb.EngineLoad, new: pb.EngineLoad) -> bool:
    """Enough to be worth telling."""
    if any(getattr(old, name) != getattr(new, name) for name in _COUNTS):
        return True
    if abs(old.token_usage - new.token_usage) > _USAGE_STEP:
        return True
    rates = old.gen_throughput, new.gen_throughput
    return abs(rates[0] - rates[1]) > min(_RATE_STEP, _RATE_RATIO * max(rates))
