"""What a worker is told at its start: the whole configuration in one piece, so that every setting reaches it."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from core.wire.messages import EngineAddresses
from service.config import GatewayConfig, ListenConfig
from service.config.address import is_port


@dataclass(frozen=True)
class WorkerSettings:
    """``number``: 1 and up, its client index on the wire. ``addresses``: where its sockets for the cores are.

    ``config.listen`` has the real ports, which the primary listens on already.
    """

    number: int
    config: GatewayConfig
    addresses: EngineAddresses

    @classmethod
    def of(
        cls, number: int, config: GatewayConfig, listen: ListenConfig, addresses: EngineAddresses
    ) -> "WorkerSettings":
        """For a worker of the gateway of ``config``, which listens as ``listen`` says."""
        grpc, plaintext = (tuple(filter(is_port, of)) for of in (listen.grpc_addresses, listen.plaintext_addresses))
        ports = replace(listen, grpc_addresses=grpc, plaintext_addresses=plaintext)
        return cls(number, replace(config, listen=ports), addresses)

    def to_json(self) -> str:
        """ASCII, whatever bytes a path has. Raises TypeError for a setting of a type that JSON has no form for."""
        return json.dumps(msgspec.to_builtins(self, enc_hook=_plain))

    @classmethod
    def from_json(cls, text: str) -> "WorkerSettings":
        """Raises ValueError, as the settings' own classes do."""
        return msgspec.convert(json.loads(text), cls, dec_hook=_typed)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a setting of type {type(value).__name__} cannot be told to a worker: {value!r}")


def _typed(kind: type, value: Any) -> Any:
    if issubclass(kind, Path):
        return Path(value)
    raise TypeError(f"no setting is a {kind.__name__}")
