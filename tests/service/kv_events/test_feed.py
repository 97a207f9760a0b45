"""From publishers to subscribers, over real sockets."""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest
import zmq

from core.config import KVEventsConfig
from core.kv_event_publisher import KVEventPublisher
from core.wire.kv_events import AllBlocksCleared, KVEventBatch
from service.config import KvEventsConfig
from service.errors import DataLoss, InvalidRequest, OutOfRange, ResourceExhausted, Unavailable
from service.kv_events.event_sockets import EventAddressError
from service.kv_events.feed import MAX_SUBSCRIPTIONS, KvEventFeed
from service.kv_events.subscription import MAX_WAITING_BATCHES, Subscription
from tests.service.kv_events.events import name_of, next_batch, next_chunk, next_of, removed, stored

Publish = Callable[..., KVEventPublisher]


@pytest.fixture
def config(tmp_path: Path) -> KvEventsConfig:
    return KvEventsConfig().placed_in(tmp_path)


@pytest.fixture
async def feed(config: KvEventsConfig) -> AsyncIterator[KvEventFeed]:
    feed = KvEventFeed(config, 2)
    feed.start()
    yield feed
    feed.close()


@pytest.fixture
def publish(config: KvEventsConfig) -> Iterator[Publish]:
    """Makes the publisher of a rank."""
    with ExitStack() as open_ones:

        def make(rank: int = 0, replay: bool = True, endpoint: str | None = None) -> KVEventPublisher:
            replay_endpoint = config.replay_endpoint if replay else None
            settings = KVEventsConfig(endpoint or str(config.endpoint), "", replay_endpoint, rank)
            publisher = KVEventPublisher(settings, lambda: pytest.fail("it died"))
            open_ones.callback(publisher.close)
            return publisher

        yield make


async def until_known(feed: KvEventFeed, number: int, rank: int = 0) -> None:
    """Until batch ``number`` has been followed."""
    with suppress(DataLoss), feed.subscribe(rank=rank) as subscription:
        while (item := await next_of(subscription)) is not None:
            if item.number >= number:
                return
    await until_known(feed, number, rank)


async def until_heard(feed: KvEventFeed, publisher: KVEventPublisher) -> None:
    """Publish until something arrives: what comes before the subscription does not."""
    async with asyncio.timeout(20):
        while True:
            publisher.publish([stored(publisher.num_published)])
            with suppress(TimeoutError, DataLoss), feed.subscribe() as subscription:
                async with asyncio.timeout(0.05):
                    await subscription.next()
                    return


async def loss_of(subscription: Subscription) -> DataLoss:
    """What it ends with, after whatever is left to read."""
    try:
        while await next_of(subscription) is not None:
            pass
    except DataLoss as error:
        return error
    pytest.fail("it ended well")


async def test_snapshot_then_batches(feed: KvEventFeed, publish: Publish) -> None:
    """Who comes late gets what can be found, and then what changes, without a gap or a repetition."""
    publisher = publish()
    publisher.publish([stored(1, count=3)])
    publisher.publish([removed(3)])
    await until_known(feed, 1)
    with feed.subscribe() as subscription:
        publisher.publish([stored(4)])
        chunk = await next_chunk(subscription)
        assert [block.block_hash for block in chunk.blocks] == [name_of(1), name_of(2)]
        assert (chunk.number, chunk.count, chunk.num_unknown_batches) == (1, 1, 0)
        batch = await next_batch(subscription)
        assert (batch.rank, batch.number, batch.batch.events) == (0, 2, [stored(4)])
    assert feed.num_subscriptions == 0


async def test_before_the_first_batch(feed: KvEventFeed, publish: Publish) -> None:
    """There is no snapshot of nothing."""
    with feed.subscribe() as subscription:
        publish().publish([stored(1)])
        assert (await next_batch(subscription)).number == 0


async def test_ranks(feed: KvEventFeed, publish: Publish) -> None:
    """Each counts by itself; who wants one gets no other."""
    publishers = [publish(rank) for rank in (0, 1)]
    with feed.subscribe() as everything, feed.subscribe(rank=1) as second:
        for publisher in (*publishers, publishers[1]):
            publisher.publish([AllBlocksCleared()])
        got = [await next_batch(everything) for _ in range(3)]
        assert sorted((batch.rank, batch.number) for batch in got) == [(0, 0), (1, 0), (1, 1)]
        assert [(await next_batch(second)).number for _ in range(2)] == [0, 1]


async def test_a_number_to_start_from(feed: KvEventFeed, publish: Publish) -> None:
    """One more than the last that was read: what came since, without a snapshot; OUT_OF_RANGE for what is not kept."""
    publisher = publish()
    for number in range(3):
        publisher.publish([stored(number)])
    await until_known(feed, 2)
    with feed.subscribe(1, rank=0) as subscription:
        assert [(await next_batch(subscription)).number for _ in range(2)] == [1, 2]
    with feed.subscribe(3, rank=0) as subscription:
        publisher.publish([removed(1)])
        assert (await next_batch(subscription)).number == 3
    with pytest.raises(OutOfRange, match="the next batch of rank 0 is 4"), feed.subscribe(5, rank=0):
        pass
    with pytest.raises(OutOfRange), feed.subscribe(7, rank=1):
        pass
    with pytest.raises(InvalidRequest, match="start_sequence_number: each of the 2 cores"), feed.subscribe(1):
        pass
    with pytest.raises(InvalidRequest, match=r"data_parallel_rank: must be in \[0, 1\], got 2"), feed.subscribe(0, 2):
        pass
    assert feed.num_subscriptions == 0


async def test_a_core_that_is_restarted(feed: KvEventFeed, publish: Publish) -> None:
    """Subscribers are told; who subscribes again gets what the new one has, also what came before it was followed."""
    first = publish()
    first.publish([stored(1)])
    with feed.subscribe() as subscription, feed.subscribe(rank=1) as of_another:
        assert (await next_batch(subscription)).number == 0
        first.close()
        assert "its publisher is gone" in (await loss_of(subscription)).message
        second = publish()
        second.publish([stored(7)])
        second.publish([stored(8)])
        await until_known(feed, 1)
        with feed.subscribe() as again:
            assert [block.block_hash for block in (await next_chunk(again)).blocks] == [name_of(7), name_of(8)]
        publish(rank=1).publish([stored(1)])
        assert (await next_batch(of_another)).rank == 1


async def test_a_core_that_was_there_before(publish: Publish, config: KvEventsConfig) -> None:
    """What it keeps is known at once; without a replay endpoint the snapshot says how much is not."""
    publisher = publish()
    for number in range(3):
        publisher.publish([stored(number)])
    feed = KvEventFeed(config, 1)
    deaf = KvEventFeed(KvEventsConfig(config.endpoint), 1)
    try:
        feed.start()
        await until_known(feed, 2)
        with feed.subscribe() as subscription:
            assert (await next_chunk(subscription)).num_blocks == 3
        deaf.start()
        await until_heard(deaf, publisher)
        with deaf.subscribe() as subscription:
            assert (await next_chunk(subscription)).num_unknown_batches >= 3
    finally:
        feed.close()
        deaf.close()


async def test_a_slow_subscriber_is_alone(feed: KvEventFeed, publish: Publish) -> None:
    """It loses what it does not read; who reads gets all of it, and new ones are served."""
    publisher = publish()
    with feed.subscribe() as slow, feed.subscribe() as quick:
        for number in range(MAX_WAITING_BATCHES + 1):
            publisher.publish([stored(number)])
            if number % 100 == 0:
                while (await next_batch(quick)).number < number:
                    pass
        publisher.publish([AllBlocksCleared()])
        while (await next_batch(quick)).number <= MAX_WAITING_BATCHES:
            pass
        assert "0 batches" in repr(slow)
        assert (await loss_of(slow)).reason == "READS_TOO_SLOWLY"


async def test_subscriptions_are_bounded(feed: KvEventFeed) -> None:
    """One too many is refused; when another ends there is room again."""
    with ExitStack() as others:
        for _ in range(MAX_SUBSCRIPTIONS):
            others.enter_context(feed.subscribe())
        with pytest.raises(ResourceExhausted, match="at most 64 may subscribe"), feed.subscribe():
            pass
    with feed.subscribe():
        assert feed.num_subscriptions == 1


async def test_close_ends_subscriptions(config: KvEventsConfig) -> None:
    """They end well, and there are no others; it may be closed twice, and without having been started."""
    feed = KvEventFeed(config, 1)
    with feed.subscribe() as subscription:
        feed.close()
        assert await next_of(subscription) is None
        feed.close()
        with pytest.raises(Unavailable, match="shuts down"), feed.subscribe():
            pytest.fail("nothing would end it")


async def test_cores_that_connect(publish: Publish) -> None:
    """At a ``*`` the gateway listens; an address that is taken is said."""
    async with asyncio.timeout(30):
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        taken = KvEventFeed(KvEventsConfig(f"tcp://*:{port}"), 1)
        with pytest.raises(EventAddressError, match=f"cannot listen at tcp://\\*:{port}"):
            taken.start()
        taken.close()
        server.close()
        await server.wait_closed()
        feed = KvEventFeed(KvEventsConfig(f"tcp://*:{port}"), 1)
        try:
            feed.start()
            publisher = publish(replay=False, endpoint=f"tcp://127.0.0.1:{port}")
            await until_heard(feed, publisher)
        finally:
            feed.close()


async def test_topics(config: KvEventsConfig) -> None:
    """What is published under another one is not heard."""
    topics = {
        topic: KvEventFeed(dataclasses.replace(config, replay_endpoint=None, topic=topic), 1) for topic in ("a", "b")
    }
    settings = KVEventsConfig(str(config.endpoint), "a@core")
    publisher = KVEventPublisher(settings, lambda: pytest.fail("it died"))
    try:
        for feed in topics.values():
            feed.start()
        await until_heard(topics["a"], publisher)
        with topics["b"].subscribe() as subscription:
            assert await subscription.next_within(0.05) is None
    finally:
        for feed in topics.values():
            feed.close()
        publisher.close()


async def test_messages_of_no_form(config: KvEventsConfig, caplog: pytest.LogCaptureFixture) -> None:
    """They are dropped with a line in the log, and what follows is read."""
    feed = KvEventFeed(KvEventsConfig(config.endpoint), 1)
    with zmq.Context() as context, context.socket(zmq.XPUB) as publisher, caplog.at_level(logging.ERROR):
        publisher.bind(str(config.endpoint))
        try:
            feed.start()
            assert await asyncio.to_thread(publisher.recv) == b"\x01"
            publisher.send_multipart([b"", b"short", b"x"])
            publisher.send_multipart([b"", bytes(8), msgspec.msgpack.encode(KVEventBatch(0.0, [stored(9)], 0))])
            await until_known(feed, 0)
        finally:
            feed.close()
    assert "a message of a publisher of KV events was dropped" in caplog.text
