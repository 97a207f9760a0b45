"""The certificates and keys of this process: read when made, renewed when their files change."""

from collections.abc import Iterator
from pathlib import Path

from prometheus_client.metrics_core import Metric

from service.config import SecurityConfig
from service.metrics.security import callers_family, expiry_family
from service.security.api_keys import ApiKeys
from service.security.certificates import Certificates
from service.security.key_check import KeyCheck


class Guards:
    """None where nothing is asked for."""

    def __init__(self, config: SecurityConfig) -> None:
        """Raises SecurityFileError if a file cannot be used."""
        self.certificates = None if config.tls is None else Certificates(config.tls)
        self.clients = _key_check(config.api_key_file)
        self.operators = _key_check(config.admin_key_file)

    def families(self) -> Iterator[Metric]:
        """What there is to see of them, as metric families."""
        if self.certificates is not None:
            yield expiry_family(self.certificates.expires_at)
        if self.clients is not None:
            yield callers_family(self.clients.num_calls)


def _key_check(key_file: Path | None) -> KeyCheck | None:
    return None if key_file is None else KeyCheck(ApiKeys(key_file))
