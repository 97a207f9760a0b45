"""One peer, once through the workloads."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import median

from bench.load import RequestRecord
from bench.peers.peer import Engine, Peer, PeerError, Place
from bench.peers.process import peak_memory_bytes
from bench.peers.prompts import ModelTokenizer
from bench.prompts import make_prompts
from bench.statistics import Summary, summarize
from bench.workload import Workload

_WARM_UP = Workload("warm-up", prompt_tokens=16, output_tokens=8, num_requests=1)


@dataclass(frozen=True)
class Round:
    """What one peer did in one round."""

    start_s: float
    """From the command to the first token."""
    peak_memory_bytes: dict[str, int]
    """Of each process, after all workloads; where there were several engines, of the largest."""
    passes: dict[str, Summary]
    """By workload and pass: ``W4 cold``."""


async def measure(
    peer: Peer, place: Place, workloads: Sequence[Workload], number: int, tell: Callable[[str], None]
) -> Round:
    """A fresh engine, warmed up by a short request, gets the workloads one after another. Raises PeerError.

    Prompts are of the round's ``number``: the same for all peers, others in the next round.
    """
    starts: list[float] = []
    memories: list[dict[str, int]] = []
    passes: dict[str, Summary] = {}
    for setup, group in groupby(workloads, peer.setup):
        began = time.monotonic()
        async with peer.start(place, setup) as engine:
            runner = _Runner(engine, place, number)
            (warm_up,) = await runner.run(_WARM_UP, "")
            starts.append(warm_up.arrivals[0][0] - began)
            for workload in group:
                for name in workload.passes:
                    title = f"{workload.name} {name}".strip()
                    passes[title] = summarize(await runner.run(workload, name))
                    tell(f"{title}: {passes[title].duration_s:.1f} s")
            memories.append(peak_memory_bytes(engine.pid))
    return Round(median(starts), max(memories, key=lambda memory: sum(memory.values())), passes)


@dataclass(frozen=True)
class _Runner:
    engine: Engine
    place: Place
    number: int

    async def run(self, workload: Workload, pass_name: str) -> list[RequestRecord]:
        """Raises PeerError if any request is not answered as long as it must be."""
        part = f"{workload.name} {pass_name} {self.number}"
        prompts = await make_prompts(ModelTokenizer(self.place.model), workload, part)
        records = await self.engine.run(workload, prompts)
        for record in records:
            if record.error is not None:
                raise PeerError(record.error)
            lengths = record.num_prompt_tokens, record.num_output_tokens
            if lengths != (workload.prompt_tokens, workload.output_tokens):
                raise PeerError(f"{workload.name}: prompt and answer have {lengths} tokens")
        return records


def share_of_round(workload: Workload, num_rounds: int) -> Workload:
    """A single stream's requests are spread over the rounds, two at least in each; a batch is sent in every round."""
    if workload.concurrency > 1:
        return workload
    return replace(workload, num_requests=max(-(-workload.num_requests // num_rounds), 2))


def log_folder(base: Path, peer: Peer, number: int) -> Path:
    """Made, for the logs of one round."""
    folder = base / f"{peer.name}-{number}"
    folder.mkdir(parents=True)
    return folder
