"""The Shepherd Model Gateway, an HTTP server, in two of its ways to reach an engine.

In direct ZMQ mode it binds the core's sockets itself. The worker's URL is ipc:///PATH: the sockets are PATH-in.sock and
PATH-out.sock, and the port of the handshake follows from PATH alone. Else it is a client of a server that speaks
vllm.grpc.engine, at grpc://HOST:PORT.
"""

import itertools
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.interop.openai_api import OpenAIApi
from tests.interop.program import Program, free_port
from tests.model_files import SMOLLM2_FOLDER

_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


@contextmanager
def listening_for_core(smg: Path, folder: Path) -> Iterator[tuple[Program, OpenAIApi, list[str]]]:
    """Without a core yet; last, the options with which one dials it."""
    path, handshake_port = _worker(folder)
    worker = ["--worker-urls", f"ipc://{path}", "--backend", "vllm", "--model-path", str(SMOLLM2_FOLDER)]
    with _launched(smg, [*worker, "--policy", "round_robin"]) as (program, port):
        dial = ["--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(handshake_port)]
        yield program, OpenAIApi(port, str(SMOLLM2_FOLDER)), dial


@contextmanager
def before_server(smg: Path, address: str, model: str) -> Iterator[tuple[Program, OpenAIApi]]:
    """As a client of the server at ``address``, told nothing else of it: ready when it serves ``model``."""
    with _launched(smg, ["--worker-urls", f"grpc://{address}"]) as (program, port):
        program.wait_until_served(f"http://127.0.0.1:{port}/readiness")
        program.wait_for_log(rf"Successfully loaded tokenizer '{model}'")
        yield program, OpenAIApi(port, model)


@contextmanager
def _launched(smg: Path, options: Sequence[str]) -> Iterator[tuple[Program, int]]:
    """With the port that it serves at."""
    port = free_port()
    command = [smg, "launch", "--host", "127.0.0.1", "--port", str(port), *options]
    metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
    quick = ["--worker-startup-check-interval", "1", "--shutdown-grace-period-secs", "5"]
    with Program([*command, *metrics, *quick]) as program:
        yield program, port


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
