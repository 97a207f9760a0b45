"""The publisher of KV events, over real sockets: what is published arrives, and what was missed is replayed."""

import queue
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from core.config import KVEventsConfig
from core.kv_event_publisher import KEPT_BATCHES, KVEventPublisher
from core.wire.kv_events import AllBlocksCleared, BlockRemoved, KVEventBatch
from core.wire.sampling_params import SamplingParams
from tests.core.builders import make_engine, make_message, step
from tests.core.front_end import PATIENCE_S
from tests.core.kv_subscriber import KVSubscriber

Death = queue.SimpleQueue[None]


@pytest.fixture
def config(tmp_path: Path) -> KVEventsConfig:
    return KVEventsConfig(f"ipc://{tmp_path}/events", "kv@here", f"ipc://{tmp_path}/replay", rank=3)


@pytest.fixture
def publisher(config: KVEventsConfig) -> Iterator[KVEventPublisher]:
    made = KVEventPublisher(config, lambda: pytest.fail("it died"))
    yield made
    made.close()


@pytest.fixture
def subscriber(config: KVEventsConfig) -> Iterator[KVSubscriber]:
    with KVSubscriber(config.endpoint, config.replay_endpoint) as made:
        yield made


def publish_until_heard(publisher: KVEventPublisher, subscriber: KVSubscriber) -> tuple[bytes, int, KVEventBatch]:
    """The first batch that arrives: those before the subscription did not."""
    publisher.publish([AllBlocksCleared()])
    while not subscriber.hears():
        publisher.publish([AllBlocksCleared()])
    return subscriber.receive()


def test_three_frames(publisher: KVEventPublisher, subscriber: KVSubscriber) -> None:
    """Topic, number and batch, with the time and the rank; numbers rise by one."""
    topic, number, batch = publish_until_heard(publisher, subscriber)
    assert topic == b"kv@here"
    assert batch.data_parallel_rank == 3
    assert batch.ts > 1.7e9
    assert batch.events == [AllBlocksCleared()]
    publisher.publish([AllBlocksCleared()])
    assert subscriber.receive()[1] == number + 1


def test_replay(publisher: KVEventPublisher, subscriber: KVSubscriber) -> None:
    """Everything from the wanted number on, in order; nothing but the end for what is beyond."""
    for index in range(5):
        publisher.publish([BlockRemoved([bytes([index])], "GPU", 0)])
    answers = subscriber.ask_replay((2).to_bytes(8, "big"))
    assert [number for number, _ in answers] == [2, 3, 4]
    assert [batch.events for _, batch in answers] == [[BlockRemoved([bytes([index])], "GPU", 0)] for index in (2, 3, 4)]
    assert subscriber.ask_replay((5).to_bytes(8, "big")) == []
    assert subscriber.ask_replay(b"\xff" * 8) == []


@pytest.mark.parametrize("request_frames", [(b"",), (b"\0" * 7,), (b"\0" * 9,), (b"\0" * 8, b""), (b"", b"", b"")])
def test_what_is_no_request_gets_the_end(
    publisher: KVEventPublisher, subscriber: KVSubscriber, request_frames: tuple[bytes, ...]
) -> None:
    """No asker waits forever, and the next one is answered."""
    publisher.publish([AllBlocksCleared()])
    assert subscriber.ask_replay(*request_frames) == []
    assert len(subscriber.ask_replay(b"\0" * 8)) == 1


def test_only_the_last_batches_are_kept(publisher: KVEventPublisher, subscriber: KVSubscriber) -> None:
    """A bound on memory: the oldest are not replayed any more."""
    for _ in range(10):
        publisher.publish([AllBlocksCleared()])
    subscriber.ask_replay(b"\0" * 8)
    for _ in range(10):
        for _ in range(KEPT_BATCHES // 10):
            publisher.publish([AllBlocksCleared()])
        subscriber.ask_replay(b"\xff" * 8)  # the backlog is sent
    answers = subscriber.ask_replay(b"\0" * 8)
    assert (answers[0][0], len(answers)) == (10, KEPT_BATCHES)


def test_a_router_knows_what_the_pool_knows(
    publisher: KVEventPublisher, subscriber: KVSubscriber, config: KVEventsConfig
) -> None:
    """Under a random load; one that comes in the middle, and had missed everything, catches up."""
    random = Random(7)
    engine = make_engine(num_blocks=21, max_num_batched_tokens=16, kv_events=publisher)
    for index in range(60):
        prompt = [random.randrange(3) * 100 + position for position in range(random.randrange(1, 40))]
        message = make_message(str(index), prompt, SamplingParams(max_tokens=random.randrange(1, 12)))
        engine.add_request(engine.preprocess_add_request(message))
        while engine.has_requests() and random.random() < 0.8:
            step(engine)
        if index % 20 == 10:
            engine.call_utility("reset_prefix_cache", [True])
            subscriber.catch_up(publisher.num_published)
            assert set(subscriber.known.blocks) == engine.scheduler.kv_cache.cached_hashes()
    while engine.has_requests():
        step(engine)
    with KVSubscriber(config.endpoint, config.replay_endpoint) as late:
        for each in (subscriber, late):
            each.catch_up(publisher.num_published)
            assert set(each.known.blocks) == engine.scheduler.kv_cache.cached_hashes()


def test_a_gap_is_filled(publisher: KVEventPublisher, subscriber: KVSubscriber) -> None:
    """A subscriber that comes late sees it by the number, and has everything after one replay."""
    publisher.publish([AllBlocksCleared()])
    subscriber.ask_replay(b"\0" * 8)
    _, number, _ = publish_until_heard(publisher, subscriber)
    publisher.publish([AllBlocksCleared()])
    subscriber.follow(number + 2)
    assert subscriber.num_known == number + 2


def test_the_last_batches_leave_before_the_end(publisher: KVEventPublisher, subscriber: KVSubscriber) -> None:
    """close sends what waits; a second close does nothing."""
    _, number, _ = publish_until_heard(publisher, subscriber)
    for _ in range(100):
        publisher.publish([AllBlocksCleared()])
    publisher.close()
    publisher.close()
    while number < publisher.num_published - 1:
        number = subscriber.receive()[1]


def test_its_death_is_told(config: KVEventsConfig) -> None:
    """Here from what no encoder takes: the core must not go on with routers that know less and less."""
    died: Death = queue.SimpleQueue()
    publisher = KVEventPublisher(config, lambda: died.put(None))
    publisher.publish([object()])  # type: ignore[list-item]
    died.get(timeout=PATIENCE_S)
    publisher.close()


def test_an_endpoint_that_is_taken() -> None:
    """Is an error that names it, and leaves nothing open."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        endpoint = f"tcp://127.0.0.1:{holder.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"KV events: cannot listen at {endpoint}: Address already in use"):
            KVEventPublisher(KVEventsConfig("inproc://events", replay_endpoint=endpoint), lambda: None)


@pytest.mark.parametrize(
    ("endpoint", "rank", "of_rank"),
    [
        ("tcp://*:5557", 0, "tcp://*:5557"),
        ("tcp://*:5557", 2, "tcp://*:5559"),
        ("tcp://[::1]:5557", 1, "tcp://[::1]:5558"),
        ("ipc:///run/events", 0, "ipc:///run/events"),
        ("ipc:///run/events", 2, "ipc:///run/events_dp2"),
        ("inproc://events", 1, "inproc://events_dp1"),
    ],
)
def test_each_rank_has_endpoints_of_its_own(endpoint: str, rank: int, of_rank: str) -> None:
    """As vLLM numbers them."""
    config = KVEventsConfig(endpoint, replay_endpoint=endpoint, rank=rank)
    assert (config.endpoint, config.replay_endpoint) == (of_rank, of_rank)


@pytest.mark.parametrize("endpoint", ["", "5557", "tcp://", "tcp://*", "tcp://*:", "tcp://*:x", "udp://*:1", "ipc://"])
@pytest.mark.parametrize("field", ["endpoint", "replay_endpoint"])
def test_what_is_no_endpoint(field: str, endpoint: str) -> None:
    """The error names the option and shows what one looks like."""
    with pytest.raises(ValueError, match=rf"kv_events_{field} must be tcp://HOST:PORT, ipc://PATH or inproc://NAME"):
        KVEventsConfig(**{"endpoint": "tcp://*:5557", field: endpoint})


@pytest.mark.parametrize(("port", "rank"), [(65535, 1), (0, 0), (99999, 0)])
def test_ports_have_bounds(port: int, rank: int) -> None:
    """With the rank added."""
    with pytest.raises(ValueError, match=rf"the port plus the rank {rank} must be in \[1, 65535\], got {port}"):
        KVEventsConfig(f"tcp://*:{port}", rank=rank)
