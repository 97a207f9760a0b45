"""The bounds of the settings."""

from pathlib import Path
from typing import Any

import pytest

from service.config import (
    ConnectionsConfig,
    CoreConfig,
    GatewayConfig,
    KvEventsConfig,
    LimitsConfig,
    ListenConfig,
    SecurityConfig,
    TlsConfig,
    TracingConfig,
    WorkersConfig,
)
from service.models import ModelFiles


def named(name: str) -> ModelFiles:
    return ModelFiles(name, Path("m"), Path("m"))


FILES = named("m")


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (ListenConfig, {"grpc_addresses": ()}, "grpc_address must be given"),
        (ListenConfig, {"grpc_addresses": ("localhost",)}, "grpc_address must be HOST:PORT .* got 'localhost'"),
        (ListenConfig, {"grpc_addresses": ("localhost:65536",)}, r"in \[0, 65535\], got 'localhost:65536'"),
        (ListenConfig, {"grpc_addresses": (":1",)}, "got ':1'"),
        (ListenConfig, {"grpc_addresses": ("unix:",)}, "must be unix:/PATH, got 'unix:'"),
        (
            ListenConfig,
            {"grpc_addresses": ("unix:/" + 107 * "x",)},
            "grpc_address .* at most 107 bytes.* got 108: '/xx",
        ),
        (ListenConfig, {"admin_address": "unix:/a\0"}, "admin_address .* none of them 0"),
        (ListenConfig, {"plaintext_addresses": ("localhost",)}, "plaintext_address must be HOST:PORT"),
        (ListenConfig, {"health_address": "x"}, "health_address must be HOST:PORT"),
        (ListenConfig, {"socket_mode": 0o666}, "socket_mode must be within 770, got 666"),
        (CoreConfig, {"handshake_address": "ipc:///" + 107 * "x"}, "handshake_address .* at most 107 bytes"),
        (ListenConfig, {"admin_address": "::1:5"}, "admin_address must be HOST:PORT .* got '::1:5'"),
        (LimitsConfig, {"max_queued_requests": 0}, "max_queued_requests must be at least 1, got 0"),
        (LimitsConfig, {"lame_duck_s": -1}, r"lame_duck must be in \[0, 1e\+06\] s, got -1"),
        (LimitsConfig, {"drain_timeout_s": -1}, r"drain_timeout must be in \[0, 1e\+06\] s, got -1"),
        (LimitsConfig, {"drain_timeout_s": float("nan")}, "got nan"),
        (LimitsConfig, {"min_flush_interval_s": 11}, r"min_flush_interval must be in \[0, 10\] s, got 11"),
        (LimitsConfig, {"drain_timeout_s": float("inf")}, "got inf"),
        (TracingConfig, {"endpoint": "collector:4317"}, "otlp_traces_endpoint must be http.* got 'collector:4317'"),
        (TracingConfig, {"endpoint": "http://"}, "got 'http://'"),
        (TracingConfig, {"endpoint": "http://x:0"}, "got 'http://x:0'"),
        (TracingConfig, {"endpoint": "http://x:y"}, "got 'http://x:y'"),
        (ConnectionsConfig, {"max_message_bytes": 0}, r"max_message_bytes must be in \[1, 2147483647\], got 0"),
        (ConnectionsConfig, {"max_metadata_bytes": 2**31}, r"max_metadata_bytes must be in .* got 2147483648"),
        (ConnectionsConfig, {"max_concurrent_streams": -1}, r"max_concurrent_streams must be in .* got -1"),
        (
            ConnectionsConfig,
            {"client_handshake_timeout_s": 0},
            r"client_handshake_timeout must be in \(0, 1e\+06\] s, got 0",
        ),
        (ConnectionsConfig, {"max_connection_age_s": -1}, r"max_connection_age must be in \[0, 1e\+06\] s, got -1"),
        (ConnectionsConfig, {"keepalive_interval_s": float("nan")}, r"keepalive_interval must be in .* got nan"),
        (CoreConfig, {}, "needs a command or a handshake_address"),
        (
            CoreConfig,
            {"command": ("x",), "coordinator_command": ("y",)},
            "data_parallel_lockstep needs a data_parallel_size of at least 2, got 1",
        ),
        (CoreConfig, {"command": ("x",), "load_timeout_s": 0}, r"core_load_timeout must be in \(0, 1e\+06\] s, got 0"),
        (CoreConfig, {"command": ("x",), "load_timeout_s": float("inf")}, "got inf"),
        (CoreConfig, {"handshake_address": "udp://h:1"}, "must be tcp://HOST:PORT or ipc:///PATH, got 'udp://h:1'"),
        (CoreConfig, {"handshake_address": "tcp://h"}, "handshake_address must be HOST:PORT"),
        (CoreConfig, {"handshake_address": "tcp://0.0.0.0:1"}, "an address that cores can dial"),
        (GatewayConfig, {"model": named("a\nb"), "core": CoreConfig(("x",))}, r"printable .* got 3: 'a\\nb'"),
        (GatewayConfig, {"model": named("\udc80"), "core": CoreConfig(("x",))}, r"got 3: '\\udc80'"),
        (GatewayConfig, {"model": named(""), "core": CoreConfig(("x",))}, "1 to 256 bytes, got 0"),
        (GatewayConfig, {"model": named(257 * "x"), "core": CoreConfig(("x",))}, "served_model_name .* got 257: 'xxx"),
        (GatewayConfig, {"model": FILES, "core": CoreConfig(("x",)), "max_model_len": 1}, "at least 2, got 1"),
        (WorkersConfig, {"num_workers": 0}, r"gateway_workers must be in \[1, 64\], got 0"),
        (WorkersConfig, {"num_workers": 65, "command": ("x",)}, r"gateway_workers must be in \[1, 64\], got 65"),
        (WorkersConfig, {"num_workers": 2}, "gateway_workers above 1 need a command"),
    ],
)
def test_out_of_bounds(kind: Any, values: dict[str, Any], message: str) -> None:
    """A setting out of bounds is refused with its name, its value and the bound."""
    with pytest.raises(ValueError, match=message):
        kind(**values)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:0", "[::1]:50051", "host.name:1", "unix:/a/b", "unix:relative", "unix:///a/b", "unix:///" + 106 * "x"],
)
def test_addresses(address: str) -> None:
    """Every form of address that gRPC listens on is taken."""
    assert ListenConfig((address,)).grpc_addresses == (address,)


@pytest.mark.parametrize(
    ("core", "expected"),
    [
        (CoreConfig(command=("x",)), ("ipc:///f/requests", "ipc:///f/outputs")),
        (CoreConfig(handshake_address="ipc:///elsewhere/h"), ("ipc:///f/requests", "ipc:///f/outputs")),
        (CoreConfig(handshake_address="tcp://10.0.0.1:29550"), ("tcp://10.0.0.1:0", "tcp://10.0.0.1:0")),
        (CoreConfig(handshake_address="tcp://[::1]:29550"), ("tcp://[::1]:0", "tcp://[::1]:0")),
    ],
)
def test_socket_addresses(core: CoreConfig, expected: tuple[str, str]) -> None:
    """The sockets lie in the private folder, or on the host that remote cores dial."""
    assert core.socket_addresses(Path("/f")) == expected


def test_what_several_processes_cannot_share() -> None:
    """A unix socket alone, and an address at which the gateway waits for events: one process alone can listen there."""
    core, workers = CoreConfig(("x",)), WorkersConfig(2, ("w",))
    with pytest.raises(ValueError, match="gateway_workers above 1 need a grpc_address with a port"):
        GatewayConfig(FILES, core, ListenConfig(("unix:/a",)), workers=workers)
    GatewayConfig(FILES, core, ListenConfig(("unix:/a", "[::]:0")), workers=workers)
    events = KvEventsConfig("tcp://*:5557")
    with pytest.raises(ValueError, match="gateway_workers above 1 need a kv_events_endpoint that names where"):
        GatewayConfig(FILES, core, kv_events=events, workers=workers)
    GatewayConfig(FILES, core, kv_events=events)


def test_admin_address_that_others_reach() -> None:
    """It needs TLS and keys, or to be asked for; one of this machine does not."""
    tls, keys = TlsConfig(Path("c"), Path("k")), Path("keys")
    for security in (
        SecurityConfig(),
        SecurityConfig(tls),
        SecurityConfig(tls, keys),
        SecurityConfig(None, None, keys),
    ):
        with pytest.raises(ValueError, match=r"admin_address .* it needs .* got '0\.0\.0\.0:1'"):
            GatewayConfig(FILES, CoreConfig(("x",)), ListenConfig(admin_address="0.0.0.0:1"), security=security)
        GatewayConfig(FILES, CoreConfig(("x",)), ListenConfig(admin_address="unix:/s"), security=security)
    for security in (SecurityConfig(tls, None, keys), SecurityConfig(allow_open_admin=True)):
        GatewayConfig(FILES, CoreConfig(("x",)), ListenConfig(admin_address="0.0.0.0:1"), security=security)
