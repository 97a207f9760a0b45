"""The Shepherd Model Gateway, which keeps an index of our prefix cache: what it counts is what our server told."""

import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from sluicegate_client import Client
from tests.e2e.server import MODEL, Server, serving
from tests.interop.openai_api import OpenAIApi
from tests.interop.program import PATIENCE_S, Program, free_port

pytestmark = pytest.mark.interop

STORY = (
    "Once upon a time there was a gate that let every stream through, one after the other, as fast as it could. " * 3
)
BLOCK_SIZE = 16


@contextmanager
def router(smg: Path, server: Server) -> Iterator[tuple[OpenAIApi, int]]:
    """With the port of its metrics. Its policy is the one that reads KV events."""
    port, metrics_port = free_port(), free_port()
    where = ["--host", "127.0.0.1", "--port", str(port)]
    metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port)]
    worker = ["--worker-urls", f"grpc://{server.address}", "--worker-startup-check-interval", "1"]
    with Program([smg, "launch", *where, *metrics, *worker, "--policy", "cache_aware"]) as program:
        program.wait_until_served(f"http://127.0.0.1:{port}/readiness")
        yield OpenAIApi(port, MODEL), metrics_port


def counted(port: int, name: str, **labels: str) -> float:
    """The router's metric; 0 if there is none yet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    found = re.findall(rf"^smg_{name}{{(.*)}} (\S+)$", text, re.MULTILINE)
    return sum(float(value) for given, value in found if all(label in given for label in wanted))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_its_index_is_our_prefix_cache(smg_program: Path) -> None:
    """What was there before it came, what comes, and, after a core was killed, what the next one has."""
    with (
        serving("--kv-events", "--kv-cache-memory", "64MiB", "--block-size", str(BLOCK_SIZE)) as server,
        Client(server.address) as client,
    ):
        num_blocks = len(client.tokenize(STORY)) // BLOCK_SIZE
        client.generate(STORY, max_tokens=1)
        with router(smg_program, server) as (api, metrics):
            until(lambda: counted(metrics, "kv_index_blocks") == num_blocks)
            assert counted(metrics, "kv_event_resyncs_total", reason="snapshot") == 1
            client.generate("Another story. " * BLOCK_SIZE, max_tokens=1)
            until(lambda: counted(metrics, "kv_index_blocks") > num_blocks)
            until(lambda: counted(metrics, "kv_event_batches_total", disposition="load_only") > 0)

            (pid,) = re.findall(r"core started, pid (\d+)", server.process.log)
            psutil.Process(int(pid)).kill()
            until(lambda: counted(metrics, "kv_event_resyncs_total", reason="data_loss") == 1)
            api.complete(STORY, temperature=0, max_tokens=1)
            until(lambda: counted(metrics, "kv_index_blocks") == num_blocks)
            assert counted(metrics, "kv_event_gaps_total") == 0
            assert counted(metrics, "kv_event_parentless_blocks_total") == 0
