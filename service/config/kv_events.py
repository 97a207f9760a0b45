"""Where the KV events of the cores are to be had."""

from dataclasses import dataclass, replace
from pathlib import Path

from core.wire.kv_endpoint import endpoint_of_rank
from service.config.core import CoreConfig


@dataclass(frozen=True)
class KvEventsConfig:
    """``endpoint`` is that of rank 0; the others' follow from it. None: in the gateway's folder, as its cores are told.

    Cores publish at ``tcp://HOST:PORT`` or ``ipc://PATH``; at ``tcp://*:PORT`` the gateway listens, and they connect.
    """

    endpoint: str | None = None
    replay_endpoint: str | None = None
    """Where to ask for what was missed; None: then it is lost."""
    topic: str = ""

    def __post_init__(self) -> None:
        for name, endpoint in (("endpoint", self.endpoint), ("replay_endpoint", self.replay_endpoint)):
            if endpoint is not None:
                _check_endpoint(f"kv_events_{name}", endpoint)
        if self.replay_endpoint is not None and self.endpoint is None:
            raise ValueError("kv_events_replay_endpoint needs kv_events_endpoint")
        if self.replay_endpoint is not None and "*" in self.replay_endpoint:
            raise ValueError(f"kv_events_replay_endpoint must name a host to ask, got {self.replay_endpoint!r}")

    @property
    def is_private(self) -> bool:
        """Cores that the gateway starts are told where to publish."""
        return self.endpoint is None

    def check_for(self, core: CoreConfig) -> None:
        """Raises ValueError if ``core`` is not told where to publish, or has ranks for which there is no endpoint."""
        if not self.is_private:
            self.endpoints_of(core.data_parallel_size - 1)
        elif not core.is_local:
            raise ValueError("kv_events needs the kv_events_endpoint of cores that the gateway does not start")

    def placed_in(self, folder: Path) -> "KvEventsConfig":
        """With the endpoints of a private one, in the gateway's ``folder``."""
        if not self.is_private:
            return self
        return replace(self, endpoint=f"ipc://{folder}/kv_events", replay_endpoint=f"ipc://{folder}/kv_events_replay")

    @property
    def core_flags(self) -> tuple[str, ...]:
        """What makes a core publish at these endpoints."""
        return f"--kv-events-endpoint={self.endpoint}", f"--kv-events-replay-endpoint={self.replay_endpoint}"

    def endpoints_of(self, rank: int) -> tuple[str, str | None]:
        """Where the core of ``rank`` publishes, and where it repeats."""
        assert self.endpoint is not None, "placed"
        replay = self.replay_endpoint
        return (
            endpoint_of_rank("kv_events_endpoint", self.endpoint, rank),
            replay and endpoint_of_rank("kv_events_replay_endpoint", replay, rank),
        )


def _check_endpoint(name: str, endpoint: str) -> None:
    if endpoint_of_rank(name, endpoint, 0).startswith("inproc:"):
        raise ValueError(f"{name} must be tcp://HOST:PORT or ipc://PATH, got {endpoint!r}")
