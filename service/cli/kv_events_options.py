"""The options by which clients can subscribe to the cores' KV events."""

from collections.abc import Callable
from typing import Any

import click

from core.wire.kv_endpoint import is_listened_at
from service.config import KvEventsConfig

_LOCAL_HOSTS = {"://*:": "://127.0.0.1:", "://[::]:": "://[::1]:"}

kv_events_option = click.option(
    "--kv-events/--no-kv-events",
    default=False,
    help="Whether clients can subscribe to what enters and leaves the prefix cache. "
    "Cores publish it in the gateway's own folder unless --kv-events-endpoint is given.",
)
_GATEWAY_OPTIONS = [
    click.option(
        "--kv-events-endpoint",
        metavar="ENDPOINT",
        help="Let clients subscribe to what the cores publish at tcp://HOST:PORT or ipc://PATH. At tcp://*:PORT the "
        "gateway listens for cores that connect.",
    ),
    click.option(
        "--kv-events-replay-endpoint", metavar="ENDPOINT", help="Where to ask the cores for events that were missed."
    ),
    click.option("--kv-events-topic", default="", help="First frame of what they publish."),
]


def gateway_kv_events_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a gateway whose cores publish elsewhere."""
    for add_option in reversed(_GATEWAY_OPTIONS):
        command = add_option(command)
    return command


def of_cores_elsewhere(endpoint: str | None, replay_endpoint: str | None, topic: str) -> KvEventsConfig | None:
    """None: nobody can subscribe. Raises ValueError."""
    if endpoint is None and replay_endpoint is None:
        return None
    return KvEventsConfig(endpoint, replay_endpoint, topic)


def of_own_cores(engine_flags: dict[str, Any]) -> KvEventsConfig:
    """Of cores that publish as ``engine_flags`` say, or else as the gateway will. Raises ValueError."""
    if not engine_flags["enable_prefix_caching"]:
        raise ValueError("--kv-events: there are no events with --no-enable-prefix-caching")
    endpoint, replay_endpoint = engine_flags["kv_events_endpoint"], engine_flags["kv_events_replay_endpoint"]
    if endpoint is not None and not is_listened_at(endpoint):
        raise ValueError(
            f"--kv-events needs a --kv-events-endpoint where cores listen, as tcp://*:5557, got {endpoint!r}"
        )
    return KvEventsConfig(_as_dialled(endpoint), _as_dialled(replay_endpoint), engine_flags["kv_events_topic"])


def of_vllm_cores(engine_flags: dict[str, Any]) -> KvEventsConfig:
    """Of cores that publish as vLLM's own options after -- say. Raises ValueError."""
    if engine_flags["kv_events_endpoint"] is None:
        raise ValueError(
            "--kv-events with --engine vllm needs --kv-events-endpoint, where vLLM publishes by its --kv-events-config"
        )
    return KvEventsConfig(
        engine_flags["kv_events_endpoint"], engine_flags["kv_events_replay_endpoint"], engine_flags["kv_events_topic"]
    )


def _as_dialled(endpoint: str | None) -> str | None:
    """Where somebody on this machine connects to who listens at ``endpoint``."""
    for listening, dialled in _LOCAL_HOSTS.items():
        endpoint = endpoint and endpoint.replace(listening, dialled)
    return endpoint
