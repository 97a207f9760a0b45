"""A subscriber to KV events, as a router has one: it rebuilds what the prefix cache holds."""

from collections.abc import Sequence
from typing import Any

import msgspec
import zmq

from core.wire.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent, KVEventBatch
from tests.core.front_end import PATIENCE_S

END_MARKER = b"\xff" * 8


class KnownBlocks:
    """The tokens of each block that can be found, by group and hash. ``learn`` fails on what contradicts them."""

    def __init__(self) -> None:
        self._groups: dict[int, dict[bytes, list[int]]] = {}

    @property
    def blocks(self) -> dict[bytes, list[int]]:
        """Of the first group."""
        return self.of_group(0)

    def of_group(self, group_idx: int | None) -> dict[bytes, list[int]]:
        assert group_idx is not None
        return self._groups.setdefault(group_idx, {})

    def learn(self, events: Sequence[KVEvent]) -> None:
        for event in events:
            match event:
                case BlockStored():
                    self._learn_stored(event)
                case BlockRemoved():
                    for block_hash in event.block_hashes:
                        del self.of_group(event.group_idx)[block_hash]
                case AllBlocksCleared():
                    self._groups.clear()

    def _learn_stored(self, event: BlockStored) -> None:
        assert len(event.token_ids) == len(event.block_hashes) * event.block_size
        assert event.extra_keys is not None
        assert len(event.extra_keys) == len(event.block_hashes)
        blocks = self.of_group(event.group_idx)
        for index, block_hash in enumerate(event.block_hashes):
            assert block_hash not in blocks
            start = index * event.block_size
            blocks[block_hash] = event.token_ids[start : start + event.block_size]


class KVSubscriber:
    """Subscribed when made, though the publisher may not know it yet: what comes before that is asked for."""

    def __init__(self, endpoint: str, replay_endpoint: str | None = None, topic: bytes = b"") -> None:
        self._context = zmq.Context()
        self._sub = self._open(zmq.XSUB, endpoint)
        self._sub.send(b"\x01" + topic)
        self._replay = self._open(zmq.DEALER, replay_endpoint) if replay_endpoint else None
        self._decoder = msgspec.msgpack.Decoder(KVEventBatch)
        self.known = KnownBlocks()
        self.num_known = 0

    def _open(self, kind: int, endpoint: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.rcvtimeo = PATIENCE_S * 1000
        socket.set_hwm(0)
        socket.connect(endpoint)
        return socket

    def hears(self) -> bool:
        """Whether a batch has arrived, or does within a moment."""
        return bool(self._sub.poll(10))

    def receive(self) -> tuple[bytes, int, KVEventBatch]:
        """The next batch as it comes, with its topic and number; nothing is learned from it."""
        topic, number, payload = self._sub.recv_multipart()
        return topic, int.from_bytes(number, "big"), self._decoder.decode(payload)

    def follow(self, stop: int) -> None:
        """Learn from the batches before number ``stop`` as they come, and from those that were missed."""
        while self.num_known < stop:
            _, number, batch = self.receive()
            if number > self.num_known:
                self.catch_up(number)
            if number == self.num_known:
                self._learn(batch)

    def catch_up(self, stop: int) -> None:
        """Learn from the batches that were missed before number ``stop``."""
        for number, batch in self.ask_replay(self.num_known.to_bytes(8, "big")):
            if self.num_known == number < stop:
                self._learn(batch)
        assert self.num_known == stop

    def ask_replay(self, *request: bytes) -> list[tuple[int, KVEventBatch]]:
        """Everything up to the end marker."""
        assert self._replay is not None
        self._replay.send_multipart([b"", *request])
        answers: list[tuple[int, KVEventBatch]] = []
        while True:
            empty, number, payload = self._replay.recv_multipart()
            assert empty == b""
            if number == END_MARKER:
                assert payload == b""
                return answers
            answers.append((int.from_bytes(number, "big"), self._decoder.decode(payload)))

    def _learn(self, batch: KVEventBatch) -> None:
        self.num_known += 1
        self.known.learn(batch.events)

    def close(self) -> None:
        self._context.destroy(linger=0)

    def __enter__(self) -> "KVSubscriber":
        return self

    def __exit__(self, *_exc: Any) -> None:
        self.close()
