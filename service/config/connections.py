"""What one connection of a client may ask for, and for how long it lives."""

from dataclasses import dataclass

from service.config.timeouts import MAX_TIMEOUT_S

_MAX_BYTES = 2**31 - 1
_MAX_STREAMS = 2**31 - 1


@dataclass(frozen=True)
class ConnectionsConfig:
    """Bounds of each connection, at every gRPC address."""

    max_message_bytes: int = 16 * 2**20
    """Largest message taken: some two million prompt tokens, or their embeddings for some thousand."""
    max_metadata_bytes: int = 16 * 2**10
    """Of one call, as HTTP/2 counts it: 32 bytes more than each name and value."""
    max_concurrent_streams: int = 4096
    """Calls that run at once on a connection; a client keeps those beyond until one ends."""
    client_handshake_timeout_s: float = 20.0
    """For TLS and HTTP/2 to begin; who has not done so by then is hung up on."""
    max_connection_age_s: float = 0.0
    """Then the client is told to connect anew, by which it finds other servers; 0: never. A tenth more or less."""
    max_connection_age_grace_s: float = 600.0
    """How long calls that run by then may go on."""
    keepalive_interval_s: float = 30.0
    """A client that was not heard for so long is pinged; 0: never."""
    keepalive_timeout_s: float = 20.0
    """A ping that is not answered in time ends the connection and its calls: the client's machine is gone."""

    def __post_init__(self) -> None:
        _check_number("max_message_bytes", self.max_message_bytes, _MAX_BYTES)
        _check_number("max_metadata_bytes", self.max_metadata_bytes, _MAX_BYTES)
        _check_number("max_concurrent_streams", self.max_concurrent_streams, _MAX_STREAMS)
        _check_seconds("client_handshake_timeout", self.client_handshake_timeout_s)
        _check_seconds("max_connection_age", self.max_connection_age_s, may_be_0=True)
        _check_seconds("max_connection_age_grace", self.max_connection_age_grace_s)
        _check_seconds("keepalive_interval", self.keepalive_interval_s, may_be_0=True)
        _check_seconds("keepalive_timeout", self.keepalive_timeout_s)


def _check_number(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise ValueError(f"{name} must be in [1, {most}], got {value}")


def _check_seconds(name: str, value: float, may_be_0: bool = False) -> None:
    if not (0 < value <= MAX_TIMEOUT_S or (may_be_0 and value == 0)):
        bounds = f"{'[' if may_be_0 else '('}0, {MAX_TIMEOUT_S:g}]"
        raise ValueError(f"{name} must be in {bounds} s, got {value:g}")
