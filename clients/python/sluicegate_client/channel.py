"""How the channels of both clients are set up."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

ChannelOptions = Sequence[tuple[str, Any]]

DEFAULT_ADDRESS = "127.0.0.1:50051"
DEFAULT_ADMIN_ADDRESS = "127.0.0.1:50052"

_OPTIONS: ChannelOptions = (
    # gRPC would send even loopback traffic through an http_proxy of the environment.
    ("grpc.enable_http_proxy", 0),
    # Answers with log-probabilities of a long prompt pass gRPC's 4 MiB.
    ("grpc.max_receive_message_length", -1),
    # A server that is gone without a word, or hangs, is noticed while calls run: a stream would wait for ever.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A server that is started again is found soon: gRPC alone would come to try every two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)

_NAMES_OF_MANY = ("dns:", "ipv4:", "ipv6:")
_BALANCED: ChannelOptions = (
    # gRPC alone would send all to the first address; and to a server that drains until its connection breaks.
    (
        "grpc.service_config",
        json.dumps(
            {
                "loadBalancingConfig": [{"round_robin": {}}],
                "healthCheckConfig": {"serviceName": "readiness"},
            }
        ),
    ),
    # Replicas that come with new addresses, where all that were known have left: gRPC's own is 30 s.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
)


def channel_options(given: ChannelOptions) -> ChannelOptions:
    """``given`` wins over the defaults."""
    return [*(dict(_OPTIONS) | dict(given)).items()]


def open_channel(
    address: str, credentials: grpc.ChannelCredentials | None, options: ChannelOptions = ()
) -> grpc.Channel:
    """``credentials`` None: plaintext. ``options`` win over the defaults."""
    given = channel_options(options)
    return grpc.secure_channel(address, credentials, given) if credentials else grpc.insecure_channel(address, given)


def open_async_channel(
    address: str, credentials: grpc.ChannelCredentials | None, options: ChannelOptions = ()
) -> grpc.aio.Channel:
    """As ``open_channel``, for asyncio."""
    given = channel_options(options)
    if credentials:
        return grpc.aio.secure_channel(address, credentials, given)
    return grpc.aio.insecure_channel(address, given)


def balancing_options(address: str) -> ChannelOptions:
    """What sends calls in turn to all servers that ``address`` names and that are ready; none for one server.

    Several are ``dns:///HOST:PORT``, ``ipv4:A:PORT,B:PORT`` and ``ipv6:[A]:PORT,[B]:PORT``. Which are ready, the
    channel learns from a Watch of each one's health.
    """
    return _BALANCED if address.startswith(_NAMES_OF_MANY) else ()


def tls_credentials(
    ca: Path | None = None, cert: Path | None = None, key: Path | None = None
) -> grpc.ChannelCredentials:
    """TLS with a server whose certificate is of the authorities in ``ca`` (None: those that gRPC knows).

    ``cert`` and ``key`` are the client's own, for a server that asks for them. All are PEM files. Raises OSError.
    """
    contents = [None if path is None else path.read_bytes() for path in (ca, key, cert)]
    return grpc.ssl_channel_credentials(*contents)


def key_metadata(api_key: str | None) -> tuple[tuple[str, str], ...]:
    """What a call with ``api_key`` says. Raises ValueError for a key that no header can hold."""
    if api_key is not None and not (api_key.isprintable() and api_key.isascii()):
        raise ValueError("api_key must be one line of printable ASCII")
    return () if api_key is None else (("authorization", f"Bearer {api_key}"),)
