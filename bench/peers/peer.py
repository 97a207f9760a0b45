"""What is compared: an engine, how it is started, and what it is sent."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from bench.load import RequestRecord
from bench.workload import Workload

Prompts = Sequence[Sequence[int]]


class PeerError(Exception):
    """It did not come up, or did not do what it was asked; the text has its last words."""


class Family(StrEnum):
    """What the maths is done in: like is compared with like."""

    FLOAT32 = "float32"
    QUANTIZED = "quantized"


@dataclass(frozen=True)
class Place:
    """What an engine gets: a folder of its own for this run, the model, and threads to compute with."""

    folder: Path
    model: Path
    """Folder, as `sluicegate pull` leaves it."""
    num_threads: int = 2

    @property
    def gguf(self) -> Path:
        (gguf,) = self.model.glob("*.gguf")
        return gguf

    @property
    def environment(self) -> dict[str, str]:
        return {"OMP_NUM_THREADS": str(self.num_threads), "HF_HUB_OFFLINE": "1"}


class Engine(Protocol):
    """One that runs."""

    @property
    def pid(self) -> int:
        """Of the process whose children, if any, are the engine's others."""

    async def run(self, workload: Workload, prompts: Prompts) -> list[RequestRecord]:
        """Sends all ``prompts``, ``workload.concurrency`` at a time. Raises PeerError."""


@dataclass(frozen=True)
class Peer:
    """``start`` gives a fresh engine, set up for a workload; engines of equal ``setup`` need no restart between."""

    name: str
    family: Family
    settings: str
    """How it is run, in a line."""
    start: Callable[[Place, str], AbstractAsyncContextManager[Engine]]
    setup: Callable[[Workload], str] = lambda _: ""
    needs: Path | None = None
    """What `python -m bench.peers install NAME` leaves behind; None = nothing."""
    is_ours: bool = False

    @property
    def is_installed(self) -> bool:
        return self.needs is None or self.needs.exists()
