"""Where the KV events of each rank are published, by vLLM's rules, so that publishers and subscribers agree."""

_MAX_PORT = 65535


def endpoint_of_rank(field: str, endpoint: str, rank: int) -> str:
    """Where ``rank`` publishes if rank 0 does at ``endpoint``: a higher port, or a name of its own.

    Raises ValueError, which names ``field``, for what is no endpoint.
    """
    scheme, _, rest = endpoint.partition("://")
    if scheme in ("ipc", "inproc") and rest:
        return f"{endpoint}_dp{rank}" if rank else endpoint
    host, _, port = endpoint.rpartition(":")
    if scheme != "tcp" or not port.isascii() or not port.isdigit() or host == "tcp":
        raise ValueError(f"{field} must be tcp://HOST:PORT, ipc://PATH or inproc://NAME, got {endpoint!r}")
    if not 1 <= int(port) + rank <= _MAX_PORT:
        raise ValueError(f"{field}: the port plus the rank {rank} must be in [1, {_MAX_PORT}], got {port}")
    return f"{host}:{int(port) + rank}"


def is_listened_at(endpoint: str) -> bool:
    """Whether a publisher that is given ``endpoint`` binds it; it connects to any other, where a subscriber listens."""
    return "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc:", "inproc:"))
