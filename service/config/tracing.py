"""Where spans go."""

from dataclasses import dataclass
from urllib.parse import urlsplit

_SCHEMES = "http", "https"


@dataclass(frozen=True)
class TracingConfig:
    """``endpoint``: URL of a collector of OTLP over gRPC; empty: no spans. OpenTelemetry's variables say the rest."""

    endpoint: str = ""

    def __post_init__(self) -> None:
        if self.endpoint and not _is_url(self.endpoint):
            raise ValueError(f"otlp_traces_endpoint must be http(s)://HOST:PORT, got {self.endpoint!r:.200}")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
