"""What operators are warned of."""

import re
from pathlib import Path

import pytest

from service.config import ListenConfig, SecurityConfig, TlsConfig
from service.security.exposure import exposures

FILE = Path("f")
TLS, MTLS = TlsConfig(FILE, FILE), TlsConfig(FILE, FILE, FILE)
HERE, ANYWHERE = "127.0.0.1:1", "0.0.0.0:1"


@pytest.mark.parametrize(
    ("listen", "security", "expected"),
    [
        (ListenConfig(), SecurityConfig(), []),
        (ListenConfig(("[::1]:1", "localhost:1", "unix:/s"), "127.9.9.9:1"), SecurityConfig(), []),
        (ListenConfig((ANYWHERE,)), SecurityConfig(), ["can call it, without TLS and without a key"]),
        (ListenConfig((ANYWHERE, HERE)), SecurityConfig(TLS), ["can call it, without a key"]),
        (ListenConfig(("host.test:1",)), SecurityConfig(None, FILE), ["keys cross the network in the clear"]),
        (ListenConfig((ANYWHERE,)), SecurityConfig(TLS, FILE), []),
        (ListenConfig((ANYWHERE,)), SecurityConfig(MTLS), []),
        (
            ListenConfig((HERE,), plaintext_addresses=("[::]:1", "unix:/s")),
            SecurityConfig(MTLS, FILE),
            [r"plaintext_address \[::\]:1: other machines can reach it, without TLS and without a key"],
        ),
        (
            ListenConfig((HERE,), ANYWHERE),
            SecurityConfig(TLS, FILE, None, allow_open_admin=True),
            ["admin_address 0.0.0.0:1: other machines can reach it, without a key"],
        ),
        (ListenConfig((HERE,), ANYWHERE), SecurityConfig(TLS, None, FILE), []),
    ],
)
def test_exposures(listen: ListenConfig, security: SecurityConfig, expected: list[str]) -> None:
    """One line for each address that other machines reach without what would keep them out."""
    lines = [*exposures(listen, security)]
    assert len(lines) == len(expected), lines
    for line, pattern in zip(lines, expected, strict=True):
        assert re.search(pattern, line), line
