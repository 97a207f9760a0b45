"""The KV events of all cores, and who subscribes to them."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from core.wire.sampling_params import Violation
from service.config import KvEventsConfig
from service.errors import DataLoss, InvalidRequest, ResourceExhausted, Unavailable, Unimplemented
from service.kv_events.batches import NumberedBatch
from service.kv_events.event_sockets import EventSockets
from service.kv_events.rank_events import RankEvents
from service.kv_events.rank_follower import RankFollower
from service.kv_events.subscription import Subscription

logger = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS = 64


def followed(feed: "KvEventFeed | None") -> "KvEventFeed":
    """For whoever wants to subscribe. Raises Unimplemented if the server was not told to follow any."""
    if feed is None:
        how = "start the server with --kv-events, a gateway without cores of its own with --kv-events-endpoint"
        raise Unimplemented(f"KV events are off: {how}", reason="KV_EVENTS_OFF")
    return feed


class KvEventFeed:
    """Followed from ``start`` to ``close``. Owned by the event loop."""

    def __init__(self, config: KvEventsConfig, num_ranks: int) -> None:
        self._subscriptions: set[Subscription] = set()
        self._is_closed = False
        self.num_losses = [0] * num_ranks
        """By rank: times that its subscribers had to forget all."""
        self._ranks = [RankEvents(rank, self._pass_on, self._tell_loss) for rank in range(num_ranks)]
        self._sockets = [EventSockets(*config.endpoints_of(rank), config.topic) for rank in range(num_ranks)]
        self._followers = list(map(RankFollower, self._ranks, self._sockets))

    def __repr__(self) -> str:
        return f"KvEventFeed({self._ranks}, {len(self._subscriptions)} subscriptions)"

    @property
    def num_subscriptions(self) -> int:
        return len(self._subscriptions)

    def start(self) -> None:
        """Raises EventAddressError. Publishers may come later, and go and come again."""
        for sockets, follower in zip(self._sockets, self._followers, strict=True):
            sockets.start(follower)

    def close(self) -> None:
        """End every subscription, and take no more. May be called twice, and without ``start``."""
        self._is_closed = True
        for subscription in self._subscriptions:
            subscription.end()
        for sockets, follower in zip(self._sockets, self._followers, strict=True):
            follower.close()
            sockets.close()

    @contextmanager
    def subscribe(self, start_number: int = 0, rank: int | None = None) -> Iterator[Subscription]:
        """What can be found now, then every batch; with a ``start_number`` the batches from that on, of one rank.

        Raises InvalidRequest, OutOfRange if these are not kept, ResourceExhausted, and Unavailable once it is closed.
        """
        if self._is_closed:
            raise Unavailable("the server shuts down", reason="DRAINING")
        ranks = self._chosen(start_number, rank)
        if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            raise ResourceExhausted(f"at most {MAX_SUBSCRIPTIONS} may subscribe at once", reason="TOO_MANY_SUBSCRIBERS")
        backlogs = [ranks[0].since(start_number)] if start_number else [of.state() for of in ranks]
        subscription = Subscription(chain.from_iterable(backlogs), rank)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def _chosen(self, start_number: int, rank: int | None) -> Sequence[RankEvents]:
        num_ranks = len(self._ranks)
        if rank is not None and rank >= num_ranks:
            bound = f"must be in [0, {num_ranks - 1}], got {rank}"
            raise InvalidRequest([Violation("data_parallel_rank", bound)])
        if start_number and rank is None and num_ranks > 1:
            bound = f"each of the {num_ranks} cores counts by itself: name a data_parallel_rank too, or leave it out"
            raise InvalidRequest([Violation("start_sequence_number", bound)])
        return self._ranks if rank is None else [self._ranks[rank]]

    def _pass_on(self, batch: NumberedBatch) -> None:
        for subscription in self._subscriptions:
            subscription.put(batch)

    def _tell_loss(self, rank: int, error: DataLoss) -> None:
        self.num_losses[rank] += 1
        for subscription in self._subscriptions:
            subscription.fail(rank, error)
