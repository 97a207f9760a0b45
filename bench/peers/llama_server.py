"""llama.cpp's own server, built for this machine, asked over HTTP."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.load import RequestRecord, closed_loop
from bench.peers.event_stream import EventStreamError, events, is_healthy
from bench.peers.peer import Engine, PeerError, Place, Prompts
from bench.peers.process import ended, free_port, running
from bench.workload import Workload

CONTEXT_TOKENS = 65536
_START_TIMEOUT_S = 120.0
_POLL_S = 0.02


@dataclass(frozen=True)
class _Served:
    pid: int
    port: int

    async def run(self, workload: Workload, prompts: Prompts) -> list[RequestRecord]:
        async def send(prompt: Sequence[int]) -> RequestRecord:
            return await _send(self.port, prompt, workload.output_tokens)

        return await closed_loop(send, prompts, workload.concurrency)


async def _send(port: int, prompt: Sequence[int], output_tokens: int) -> RequestRecord:
    body = {
        "prompt": prompt,
        "n_predict": output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_tokens": True,
    }
    record = RequestRecord(time.monotonic())
    try:
        async for event in events(port, "/completion", body):
            _note(record, event)
    except (EventStreamError, OSError) as error:
        record.error = str(error)
    record.end = time.monotonic()
    return record


def _note(record: RequestRecord, event: dict[str, Any]) -> None:
    """An event has a token, but for tokens that end within a character: only the last event counts them, too."""
    num_new_tokens = len(event.get("tokens", ()))
    if event.get("stop"):
        num_new_tokens = event["tokens_predicted"] - record.num_output_tokens
        record.num_prompt_tokens = event["tokens_evaluated"]
        record.num_cached_tokens = event["timings"]["cache_n"]
    if num_new_tokens:
        record.arrivals.append((time.monotonic(), num_new_tokens))


@asynccontextmanager
async def start(place: Place, num_slots: str, program: Path) -> AsyncIterator[Engine]:
    """With so many slots, which share a context of CONTEXT_TOKENS."""
    port, log = free_port(), place.folder / "llama-server.log"
    threads = str(place.num_threads)
    computing = ["-t", threads, "-tb", threads, "-np", num_slots, "-c", str(CONTEXT_TOKENS)]
    command = [
        str(program),
        "-m",
        str(place.gguf),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        *computing,
        "--no-webui",
    ]
    # Not OMP_NUM_THREADS: it has flags for its threads.
    async with running(command, log, {}) as process:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not await is_healthy(port):
            if process.returncode is not None:
                raise ended("llama-server", log)
            if time.monotonic() > deadline:
                raise PeerError(f"llama-server was not ready within {_START_TIMEOUT_S:g} s")
            await asyncio.sleep(_POLL_S)
        yield _Served(process.pid, port)
