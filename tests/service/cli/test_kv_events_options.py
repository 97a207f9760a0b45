"""The options by which clients can subscribe to the cores' KV events."""

from typing import Any

import pytest
from click.testing import CliRunner

from service.cli.gateway import gateway
from service.cli.kv_events_options import of_cores_elsewhere, of_own_cores, of_vllm_cores
from service.cli.serve import serve
from service.config import KvEventsConfig


def flags(**given: Any) -> dict[str, Any]:
    return {
        "enable_prefix_caching": True,
        "kv_events_endpoint": None,
        "kv_events_replay_endpoint": None,
        "kv_events_topic": "",
    } | given


def test_own_cores() -> None:
    """At a private place, or where they listen for everybody, which is dialled here."""
    assert of_own_cores(flags(kv_events_topic="kv")) == KvEventsConfig(topic="kv")
    public = flags(kv_events_endpoint="tcp://*:5557", kv_events_replay_endpoint="tcp://*:5558")
    assert of_own_cores(public) == KvEventsConfig("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558")
    assert of_own_cores(flags(kv_events_endpoint="tcp://[::]:5557")) == KvEventsConfig("tcp://[::1]:5557")
    assert of_own_cores(flags(kv_events_endpoint="ipc:///p")) == KvEventsConfig("ipc:///p")


def test_cores_of_others() -> None:
    """Where they publish has to be told; a gateway without it serves no events."""
    assert of_cores_elsewhere(None, None, "") is None
    assert of_cores_elsewhere("tcp://x:1", "tcp://x:2", "t") == KvEventsConfig("tcp://x:1", "tcp://x:2", "t")
    assert of_vllm_cores(flags(kv_events_endpoint="tcp://x:1")) == KvEventsConfig("tcp://x:1")
    with pytest.raises(ValueError, match="needs --kv-events-endpoint"):
        of_vllm_cores(flags())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no-enable-prefix-caching"], "there are no events with --no-enable-prefix-caching"),
        (["--kv-events-endpoint", "tcp://router:5557"], "where cores listen"),
        (["--engine", "vllm", "--engine-python", "/bin/sh"], "needs --kv-events-endpoint"),
    ],
)
def test_serve_says_what_does_not_go_together(arguments: list[str], message: str) -> None:
    """Before anything is loaded."""
    result = CliRunner().invoke(serve, ["smollm2-135m", "--kv-events", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_gateway_says_what_is_no_endpoint() -> None:
    """By name."""
    arguments = ["smollm2-135m", "--handshake-address", "ipc:///h", "--kv-events-endpoint", "x"]
    result = CliRunner().invoke(gateway, arguments)
    assert result.exit_code == 2
    assert "--kv-events-endpoint must be" in result.output
