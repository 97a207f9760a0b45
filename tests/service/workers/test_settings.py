"""What a worker is told at its start."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from core.wire.messages import EngineAddresses
from service.config import CoreConfig, GatewayConfig, ListenConfig, SecurityConfig, TlsConfig, WorkersConfig
from service.models import ModelFiles
from service.workers.settings import WorkerSettings

ADDRESSES = EngineAddresses(["ipc:///in"], ["ipc:///out"])
LISTEN = ListenConfig(("127.0.0.1:1234", "unix:/s"), "127.0.0.1:0", plaintext_addresses=("unix:/p", "[::1]:5"))
CONFIG = GatewayConfig(
    ModelFiles("m", Path(os.fsdecode(b"/no-utf8-\xff")), Path("/tokenizer")),
    CoreConfig(command=("core", "--flag")),
    security=SecurityConfig(TlsConfig(Path("/cert"), Path("/key")), Path("/keys")),
    lora_modules=(("a", "/a"),),
    workers=WorkersConfig(2, ("worker",)),
)


def test_every_setting_arrives() -> None:
    """As it was, but for the addresses: the real ports, and no unix sockets, which the primary keeps."""
    settings = WorkerSettings.of(1, CONFIG, LISTEN, ADDRESSES)
    assert WorkerSettings.from_json(settings.to_json()) == settings
    listen = replace(LISTEN, grpc_addresses=("127.0.0.1:1234",), plaintext_addresses=("[::1]:5",))
    assert settings == WorkerSettings(1, replace(CONFIG, listen=listen), ADDRESSES)


def test_setting_that_cannot_be_told() -> None:
    """It is named before a worker starts."""
    config = replace(CONFIG, lora_modules=(object(),))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot be told to a worker"):
        WorkerSettings.of(1, config, LISTEN, ADDRESSES).to_json()
