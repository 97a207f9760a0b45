"""Dashboard and alerts before a Prometheus that scrapes a server: every name is there, every query has an answer."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from bench.null_core import __name__ as null_core
from service.models import ModelFiles
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.deploy.prometheus import Prometheus
from tests.deploy.test_alerts import rules
from tests.service.byte_model import write_byte_model
from tests.service.gateway_process import PythonProcess
from tests.toolchain import require

FOLDER = Path(__file__).parents[2] / "deploy/grafana"
NOT_HERE = {
    "sluicegate:tls_certificate_expiry_timestamp_seconds",
    "sluicegate:calls_by_key_total",
    "sluicegate:spans_total",
}
"""With TLS, keys, or traces only."""
NAME = re.compile(r"\b(?:vllm|sluicegate|process|python):?\w+")


def expressions() -> Iterator[str]:
    """Of the dashboard, with all of Grafana's variables chosen."""
    dashboard: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$instance", ".*").replace("$model", ".*").replace("$__rate_interval", "1m")


@asynccontextmanager
async def served(model: ModelFiles, folder: Path, sockets: Path) -> AsyncIterator[tuple[str, str]]:
    """Addresses for calls and for metrics of a gateway with a core that has no model."""
    addresses = ["--grpc-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0"]
    handshake = ["--handshake-address", f"ipc://{sockets}/handshake"]
    gateway = PythonProcess(folder, "service", "gateway", str(model.path), *handshake, *addresses)
    core = PythonProcess(folder, null_core, *handshake, "--token-ids", "97,98,99")
    async with gateway, core:
        address = await gateway.until_ready()
        yield address, (await gateway.until_logged(r"metrics on http://(\S+)/metrics")).group(1)


@pytest.fixture
def byte_model(tmp_path: Path) -> ModelFiles:
    (tmp_path / "bytes").mkdir()
    return write_byte_model(tmp_path / "bytes")


async def put_load_on(address: str) -> None:
    """A little of everything."""
    async with grpc.aio.insecure_channel(address) as channel:
        inference = InferenceServiceStub(channel)
        for _ in range(3):
            await inference.Generate(pb.GenerateRequest(text="hello", sampling_params={"n": 2, "max_tokens": 5}))
        stream = inference.GenerateStream(pb.GenerateRequest(text="hello", sampling_params={"max_tokens": 500}))
        await stream.read()
        stream.cancel()
        for request in (pb.GenerateRequest(), pb.GenerateRequest(text="a", sampling_params={"n": 5000})):
            with pytest.raises(grpc.aio.AioRpcError):
                await inference.Generate(request)


async def test_every_query_has_an_answer(byte_model: ModelFiles, tmp_path: Path, short_folder: Path) -> None:
    """Each query of the dashboard has a result, and what alerts ask is there to be asked."""
    require("prometheus")
    (tmp_path / "tmp").mkdir()
    async with (
        served(byte_model, tmp_path / "tmp", short_folder) as (address, metrics_address),
        Prometheus(tmp_path, metrics_address) as prometheus,
    ):
        await put_load_on(address)
        await prometheus.until("vllm:request_success_total > 0")
        await put_load_on(address)
        await prometheus.until("rate(vllm:request_success_total[1m]) > 0")
        silent = [query for query in expressions() if not await prometheus.query(query)]
        names = {*await prometheus.get("label/__name__/values")}
        for rule in rules():
            await prometheus.query(rule["expr"])
        (loaded,) = (await prometheus.get("rules"))["groups"]
        assert await prometheus.query("vllm:num_requests_running") != []
    assert [rule["name"] for rule in loaded["rules"]] == [rule["alert"] for rule in rules()]
    assert {name for query in silent for name in NAME.findall(query)} <= NOT_HERE
    asked = {name for query in [*expressions(), *(rule["expr"] for rule in rules())] for name in NAME.findall(query)}
    assert asked - names <= NOT_HERE
    assert len(asked) > 30


def test_the_dashboard_is_up_to_date() -> None:
    """As its script writes it."""
    done = subprocess.run(
        [sys.executable, "make_dashboard.py"], cwd=FOLDER, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == (FOLDER / "dashboard.json").read_text(), "python make_dashboard.py > dashboard.json"


def test_the_dashboard_can_be_imported() -> None:
    """Panels have numbers of their own, do not lie on each other, and each says what it is for."""
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len({*cells}) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert all(panel["description"] for panel in panels if panel["type"] != "row")
