"""Batches of KV events as they come over the wire."""

import logging

import msgspec

from core.wire.codec import WireError
from core.wire.kv_events import Count, EpochSeconds, KVEvent, KVEventBatch

logger = logging.getLogger(__name__)


class _RawBatch(msgspec.Struct, array_like=True, gc=False):
    ts: EpochSeconds
    events: list[msgspec.Raw]
    data_parallel_rank: Count | None = None


class _AnyEvent(msgspec.Struct, gc=False):
    type: str


class BatchDecoder:
    """Kinds of events that newer cores may have and nobody here knows are left out, with a warning for each kind."""

    def __init__(self) -> None:
        self._batches = msgspec.msgpack.Decoder(KVEventBatch)
        self._raw_batches = msgspec.msgpack.Decoder(_RawBatch)
        self._events = msgspec.msgpack.Decoder(KVEvent)
        self._kinds = msgspec.msgpack.Decoder(_AnyEvent)
        self._known_kinds = {kind.__name__ for kind in KVEvent.__args__}
        self._skipped_kinds: set[str] = set()

    def decode(self, payload: bytes) -> KVEventBatch:
        """Raises WireError for what is no batch."""
        try:
            try:
                return self._batches.decode(payload)
            except msgspec.ValidationError:
                raw = self._raw_batches.decode(payload)
            events = [self._events.decode(event) for event in raw.events if self._is_known(event)]
        except (msgspec.DecodeError, RecursionError) as error:
            raise WireError(str(error)) from error
        return KVEventBatch(raw.ts, events, raw.data_parallel_rank)

    def _is_known(self, event: msgspec.Raw) -> bool:
        kind = self._kinds.decode(event).type
        if kind in self._known_kinds:
            return True
        if kind not in self._skipped_kinds and len(self._skipped_kinds) < len(self._known_kinds):
            self._skipped_kinds.add(kind)
            logger.warning("KV events of the kind %.100r are left out: nobody here knows it", kind)
        return False
