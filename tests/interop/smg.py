"""The Shepherd Model Gateway in direct ZMQ mode: an HTTP server that binds the core's sockets itself.

The worker's URL is ipc:///PATH: the sockets are PATH-in.sock and PATH-out.sock, and the port of the handshake follows
from PATH alone.
"""

import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.openai_api import OpenAIApi
from tests.interop.program import Program, free_port
from tests.model_files import SMOLLM2_FOLDER

_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


@contextmanager
def listening_for_core(smg: Path, folder: Path) -> Iterator[tuple[Program, OpenAIApi, list[str]]]:
    """Without a core yet; last, the options with which one dials it."""
    port = free_port()
    path, handshake_port = _worker(folder)
    worker = ["--worker-urls", f"ipc://{path}", "--backend", "vllm", "--model-path", SMOLLM2_FOLDER]
    command = [smg, "launch", "--host", "127.0.0.1", "--port", str(port), *worker, "--policy", "round_robin"]
    metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
    quick = ["--worker-startup-check-interval", "1", "--shutdown-grace-period-secs", "5"]
    with Program([*command, *metrics, *quick]) as program:
        dial = ["--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(handshake_port)]
        yield program, OpenAIApi(port, str(SMOLLM2_FOLDER)), dial


def _worker(folder: Path) -> tuple[Path, int]:
    """A path in ``folder`` whose port is free."""
    for number in itertools.count():
        port = handshake_port(path := folder / f"worker{number}")
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return path, port
    raise AssertionError


def handshake_port(path: Path) -> int:
    """20000 and the FNV-1a hash of the path, modulo 10000."""
    digest = _FNV_OFFSET
    for byte in str(path).encode():
        digest = (digest ^ byte) * _FNV_PRIME % 2**64
    return 20000 + digest % 10000
