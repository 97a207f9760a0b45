"""Where the KV events of the cores are to be had."""

from pathlib import Path
from typing import Any

import pytest

from service.config import CoreConfig, GatewayConfig, KvEventsConfig
from service.models import ModelFiles

MODEL = ModelFiles("m", Path("/m"), Path("/m"))


def test_private_endpoints() -> None:
    """In the gateway's folder; a name for each rank; the cores are told."""
    placed = KvEventsConfig().placed_in(Path("/run/sg"))
    assert placed.endpoints_of(0) == ("ipc:///run/sg/kv_events", "ipc:///run/sg/kv_events_replay")
    assert placed.endpoints_of(3) == ("ipc:///run/sg/kv_events_dp3", "ipc:///run/sg/kv_events_replay_dp3")
    assert placed.core_flags == (
        "--kv-events-endpoint=ipc:///run/sg/kv_events",
        "--kv-events-replay-endpoint=ipc:///run/sg/kv_events_replay",
    )
    core = CoreConfig(command=("core", "m")).with_flags(*placed.core_flags)
    assert core.command == ("core", "m", *placed.core_flags)


def test_given_endpoints() -> None:
    """A port for each rank; they stay where they are."""
    config = KvEventsConfig("tcp://10.0.0.1:5557", "tcp://10.0.0.1:6557")
    assert config.placed_in(Path("/run/sg")) is config
    assert config.endpoints_of(2) == ("tcp://10.0.0.1:5559", "tcp://10.0.0.1:6559")
    assert KvEventsConfig("tcp://*:5557").endpoints_of(0) == ("tcp://*:5557", None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"endpoint": "http://x:1"}, "kv_events_endpoint must be tcp://HOST:PORT"),
        ({"endpoint": "inproc://x"}, "kv_events_endpoint must be tcp://HOST:PORT or ipc://PATH"),
        ({"endpoint": "tcp://x:0"}, "kv_events_endpoint: the port"),
        ({"replay_endpoint": "tcp://x:1"}, "kv_events_replay_endpoint needs kv_events_endpoint"),
        ({"endpoint": "tcp://x:1", "replay_endpoint": "tcp://x"}, "kv_events_replay_endpoint must be"),
        ({"endpoint": "tcp://x:1", "replay_endpoint": "tcp://*:2"}, "must name a host to ask"),
    ],
)
def test_what_is_no_endpoint(values: dict[str, Any], message: str) -> None:
    """It is refused by name."""
    with pytest.raises(ValueError, match=message):
        KvEventsConfig(**values)


def test_ranks_without_an_endpoint() -> None:
    """Ports end; and cores that the gateway does not start cannot be told where to publish."""
    elsewhere = CoreConfig(handshake_address="ipc:///h", data_parallel_size=3)
    GatewayConfig(MODEL, elsewhere, kv_events=KvEventsConfig("tcp://x:65533"))
    with pytest.raises(ValueError, match="the port plus the rank 2"):
        GatewayConfig(MODEL, elsewhere, kv_events=KvEventsConfig("tcp://x:65534"))
    with pytest.raises(ValueError, match="kv_events needs the kv_events_endpoint"):
        GatewayConfig(MODEL, elsewhere, kv_events=KvEventsConfig())
