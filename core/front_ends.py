"""What the core knows of the front-end processes it serves, each by its client index.

    input thread    hears from them: writes        output thread    speaks to them: reads

No lock: what is shared is one reference or one flag of each front end.
"""

from core.wire.version import WireVersion, version_of_request


class FrontEnds:
    """``version``: what all of them speak; None: each is known by the first request that tells."""

    def __init__(self, num_front_ends: int, version: WireVersion | None = None) -> None:
        self._versions = [version] * num_front_ends

    def __len__(self) -> int:
        return len(self._versions)

    def version_of(self, client_index: int) -> WireVersion | None:
        """None: not known yet."""
        return self._versions[client_index]

    def hear_request(self, client_index: int, document: bytes) -> None:
        """An ADD has come."""
        if self._versions[client_index] is None:
            self._versions[client_index] = version_of_request(document)
