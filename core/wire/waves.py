"""The messages of the data-parallel coordinator: positional msgpack arrays, one frame each.

coordinator ── COORDINATOR_READY ──────────▶ engines      once every engine has subscribed
            ── START_DP_WAVE, StartWave ───▶ engines
            ◀─ EngineCoreOutputs ──────────  engines      counts, start_wave or wave_complete
            ── CoordinatorState ───────────▶ front ends
            ◀─ FirstRequest ───────────────  front ends
"""

import dataclasses
from typing import Annotated

import msgspec

COORDINATOR_READY = b"READY"
SUBSCRIBE = b"\x01"
"""What an engine or a front end sends first: it wants everything that the coordinator publishes."""
UNSUBSCRIBE = b"\x00"
MAX_WAVE = 1 << 53
"""Of a wave that somebody else says; there is room above it to count on."""
Wave = Annotated[int, msgspec.Meta(ge=0, le=2 * MAX_WAVE)]
"""The number of a wave; how often all engines have come to rest."""
COORDINATOR_CLIENT_INDEX = -1
"""In place of a client index: an output for the coordinator."""


@dataclasses.dataclass(frozen=True)
class CoordinatorAddresses:
    """Where it listens, port 0 = any; named as INIT names them to those who connect."""

    coordinator_input: str
    coordinator_output: str
    frontend_stats_publish_address: str


class StartWave(msgspec.Struct, array_like=True, frozen=True):
    """All engines run ``wave``. ``excluded_engine``, its index or its identity, does so already."""

    wave: Wave
    excluded_engine: int | bytes | None = None


class CoordinatorState(msgspec.Struct, array_like=True, frozen=True):
    """``counts``: [waiting, running] requests of each engine; None if it is about the wave alone."""

    counts: list[list[int]] | None
    wave: int
    running: bool


class FirstRequest(msgspec.Struct, array_like=True, frozen=True):
    """A request was sent to ``engine``, its identity, while the engines were at rest before ``wave``."""

    engine: Annotated[bytes, msgspec.Meta(max_length=2)] | int | None
    wave: Wave
