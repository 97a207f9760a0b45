"""The load that goes out with KV events."""

from smg_grpc_proto.generated import common_pb2 as pb

from service.servicers.vllm_engine.load_records import TICK_S, LoadRecords


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Recorded:
    """Records of ranks whose load the test sets."""

    def __init__(self, *ranks_before_first: int) -> None:
        self.clock = Clock()
        self.loads = {rank: pb.EngineLoad(token_usage=0.5, cache_hit_rate=0.25) for rank in range(2)}
        self.records = LoadRecords(self._load, ranks_before_first, self.clock)

    def _load(self, rank: int) -> pb.EngineLoad:
        load = pb.EngineLoad()
        load.CopyFrom(self.loads[rank])
        return load

    def stamp(self, number: int, rank: int = 0) -> pb.EngineLoad:
        return self.records.stamp(pb.KvEventBatch(sequence_number=number, dp_rank=rank)).load

    def due(self, after_s: float = TICK_S) -> list[pb.KvEventBatch]:
        self.clock.now += after_s
        return [*self.records.due()]


def test_every_batch_has_the_load() -> None:
    """In order; details go with the first only."""
    recorded = Recorded()
    first, second = recorded.stamp(5), recorded.stamp(6)
    assert (first.sample, first.cache_hit_rate, first.load_only) == (1, 0.25, False)
    assert (second.sample, second.token_usage, second.HasField("cache_hit_rate")) == (2, 0.5, False)


def test_a_change_goes_out_by_itself() -> None:
    """Under the number of the last batch of its core, with details; small ones wait."""
    recorded = Recorded()
    recorded.stamp(5)
    recorded.stamp(7, rank=1)
    assert recorded.due() == []
    recorded.loads[0].token_usage = 0.504
    recorded.loads[0].gen_throughput = 0.0
    recorded.loads[1].running_requests = 1
    (record,) = recorded.due()
    assert (record.sequence_number, record.dp_rank, len(record.events)) == (7, 1, 0)
    assert (record.load.load_only, record.load.running_requests, record.load.sample) == (True, 1, 3)
    assert record.load.HasField("cache_hit_rate")
    assert recorded.due() == []
    recorded.loads[0].token_usage = 0.51
    assert [(each.dp_rank, each.load.token_usage) for each in recorded.due()] == [(0, 0.51)]


def test_between_ticks_nothing_is_looked_at() -> None:
    """However many batches come meanwhile: what they bring along is news enough."""
    recorded = Recorded()
    recorded.stamp(5)
    assert recorded.due() == []
    recorded.loads[0].running_requests = 1
    assert recorded.due(TICK_S / 2) == []
    assert len(recorded.due(TICK_S)) == 1


def test_signs_of_life() -> None:
    """Once a second, and after two that told nothing new every five seconds; a change makes it a second again."""
    recorded = Recorded()
    recorded.stamp(5)
    assert [len(recorded.due(0.9)), len(recorded.due(0.2))] == [0, 1]
    assert [len(recorded.due(0.9)), len(recorded.due(0.2))] == [0, 1]
    assert [len(recorded.due(1.1)), len(recorded.due(3.0)), len(recorded.due(1.0))] == [0, 0, 1]
    recorded.loads[0].waiting_requests = 2
    assert len(recorded.due()) == 1
    assert len(recorded.due(1.1)) == 1


def test_nothing_before_the_first_batch() -> None:
    """Unless the subscriber asks for it: then every core's, under the number 0, from the beginning on."""
    assert Recorded().due(10.0) == []
    records = Recorded(0, 1).due()
    assert [(record.sequence_number, record.dp_rank, record.load.load_only) for record in records] == [
        (0, 0, True),
        (0, 1, True),
    ]
