"""Processes of engines: started with a log, ended with all that they have started, and how much memory they took."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

from bench.peers.peer import PeerError

_EXIT_GRACE_S = 15.0
_LAST_WORDS = 2000


@asynccontextmanager
async def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str], with_pipes: bool = False
) -> AsyncIterator[asyncio.subprocess.Process]:
    """``with_pipes``: standard input and output are for the caller; all else goes to the log."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.PIPE if with_pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if with_pipes else output,
            stderr=output,
            env={**os.environ, **environment},
            start_new_session=True,
            limit=1 << 26,
        )
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Asked first, then killed, with its whole group."""
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _EXIT_GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def ended(name: str, log: Path) -> PeerError:
    """What to raise when ``name`` is no longer there."""
    return PeerError(f"{name} ended: {log.read_text(errors='replace')[-_LAST_WORDS:]}")


def peak_memory_bytes(pid: int) -> dict[str, int]:
    """The largest resident memory that each live process of the tree has had, by what its command line begins with."""
    process = psutil.Process(pid)
    processes = [process, *process.children(recursive=True)]
    return {f"{each.pid} {_title(each)}": _peak_bytes(each) for each in processes}


def _title(process: psutil.Process) -> str:
    program, *arguments = process.cmdline() or [process.name()]
    return " ".join([Path(program).name, *arguments])[:60]


def _peak_bytes(process: psutil.Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(kilobytes) * 1024
