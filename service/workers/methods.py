"""What the primary may ask of a worker, and a worker of it."""

import msgspec

from core.wire.messages import EngineReadyResponse, LoRARequest
from service.workers.channel import Method
from service.workers.core_loads import CoreLoad


class Opening(msgspec.Struct, frozen=True):
    """How things stand when a worker begins to serve."""

    adapters: list[LoRARequest]
    is_asleep: bool = False
    waves_address: str | None = None
    """Where the coordinator tells of waves, of cores that step in lockstep."""
    cores: list[EngineReadyResponse] = []
    """What they have said of themselves, if they were ready before the worker came: they do not say it again."""


class Report(msgspec.Struct, frozen=True):
    """What a worker knows of the cores, and what it has counted: a ``Load`` of sluicegate.v1, or metrics.

    Empty while it is being opened: it has counted nothing yet.
    """

    core_loads: list[CoreLoad]
    counted: bytes = b""


class CoreLoss(msgspec.Struct, frozen=True):
    """Of a rank, and why."""

    rank: int
    reason: str


class Farewell(msgspec.Struct, frozen=True):
    """What a worker has counted in all its life, as REPORT_LOAD and REPORT_METRICS have it."""

    load: bytes
    metrics: bytes


PREPARE = Method[str, None]("prepare", str)
"""Settings as JSON: open the sockets for the cores, and load the tokenizer meanwhile."""
OPEN = Method[Opening, None]("open", Opening)
"""The cores are ready: listen, and let calls in."""
SET_ASLEEP = Method[bool, None]("set_asleep", bool)
BE_LAME_DUCK = Method[None, None]("be_lame_duck")
"""As ``Gate.be_lame_duck``."""
DRAIN = Method[float, int]("drain", float, int)
"""As ``Gate.drain``."""
ABORT = Method[list[str], int]("abort", list[str], int)
"""As ``Generator.abort``."""
ABORT_ANYWHERE = Method[list[str], int]("abort_anywhere", list[str], int)
"""Of the primary: in all processes. The client of a worker does not know which of them has a request."""
SET_ADAPTERS = Method[list[LoRARequest], None]("set_adapters", list[LoRARequest])
"""As ``Adapters.mirror``."""
FORGET_PREFIXES = Method[None, None]("forget_prefixes")
"""As ``EngineClient.forget_prefixes``."""
EXCHANGE_CORE_LOADS = Method[list[CoreLoad], list[CoreLoad]]("exchange_core_loads", list[CoreLoad], list[CoreLoad])
"""What each end knows of the cores."""
REPORT_LOAD = Method[None, Report]("report_load", result=Report)
REPORT_METRICS = Method[None, Report]("report_metrics", result=Report)
LOSE_CORE = Method[CoreLoss, None]("lose_core", CoreLoss)
"""A core is lost, of which the worker may have heard or not."""
EXPECT_CORE = Method[int, None]("expect_core", int)
"""As ``Engines.expect_successor``."""
GIVE_UP_CORE = Method[CoreLoss, None]("give_up_core", CoreLoss)
"""As ``Engines.give_up``."""
FAREWELL = Method[Farewell, None]("farewell", Farewell)
"""Of the primary: a worker is about to end."""
