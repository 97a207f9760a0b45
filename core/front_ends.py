"""What the core knows of the front-end processes it serves, each by its client index.

    input thread    hears from them: writes        output thread    speaks to them: reads

No lock: what both threads touch is one reference or one flag of each front end.
"""

from core.wire.version import WireVersion, version_of_request

FIRST_CONNECTION_S = 30.0
"""For the connection to a front end that has just told where it listens."""
RECONNECTION_S = 1.0
"""A connection that is back by then was only disturbed: zmq renews it by itself."""


class FrontEnds:
    """``version``: what all of them speak; None: each is known by the first request that tells.

    Whoever calls brings the time, ``now``: a monotonic clock in seconds.
    """

    def __init__(self, num_front_ends: int, now: float, version: WireVersion | None = None) -> None:
        self._versions = [version] * num_front_ends
        self._gone = [False] * num_front_ends
        self._connection_due = dict.fromkeys(range(num_front_ends), now + FIRST_CONNECTION_S)

    def __len__(self) -> int:
        return len(self._versions)

    def version_of(self, client_index: int) -> WireVersion | None:
        """None: not known yet."""
        return self._versions[client_index]

    def is_gone(self, client_index: int) -> bool:
        """Whether it was lost and has not come back."""
        return self._gone[client_index]

    @property
    def all_gone(self) -> bool:
        return all(self._gone)

    def hear_request(self, client_index: int, document: bytes) -> None:
        """An ADD has come."""
        if self._versions[client_index] is None:
            self._versions[client_index] = version_of_request(document)

    def connect(self, client_index: int) -> None:
        """Its connection is there, or there again."""
        self._connection_due.pop(client_index, None)
        self._gone[client_index] = False

    def disconnect(self, client_index: int, now: float) -> None:
        """Its connection has ended."""
        if not self._gone[client_index]:
            self._connection_due[client_index] = now + RECONNECTION_S

    def take_lost(self, now: float) -> list[int]:
        """Those who have not come back in time; each once."""
        lost = [client_index for client_index, due in self._connection_due.items() if due <= now]
        for client_index in lost:
            del self._connection_due[client_index]
            self._gone[client_index] = True
        return lost

    def seconds_to_next_loss(self, now: float) -> float | None:
        """Until somebody would be lost; None: everybody is there, or gone."""
        return max(0.0, min(self._connection_due.values()) - now) if self._connection_due else None
