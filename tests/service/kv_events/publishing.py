"""A core's publisher for the gateway of a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.config import KVEventsConfig
from core.kv_event_publisher import KVEventPublisher
from service.config import GatewayConfig, KvEventsConfig


def events_in(folder: Path) -> KvEventsConfig:
    """Published and replayed there."""
    return KvEventsConfig(f"ipc://{folder}/events", f"ipc://{folder}/replay")


@contextmanager
def publishing_for(config: GatewayConfig) -> Iterator[KVEventPublisher]:
    """What the core of rank 0 has, where the gateway of ``config`` subscribes."""
    assert config.kv_events is not None
    endpoint, replay_endpoint = config.kv_events.endpoints_of(0)
    publisher = KVEventPublisher(KVEventsConfig(endpoint, "", replay_endpoint), lambda: pytest.fail("it died"))
    yield publisher
    publisher.close()
