"""HAProxy and nginx, with the configurations that this project ships: only addresses are others."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.deploy.envoy.proxy import ROOT
from tests.interop.program import Program, free_port
from tests.toolchain import require

LISTENING, BACKENDS = "127.0.0.1:50050", ("127.0.0.1:50051", "127.0.0.2:50051")


def _configured(shipped: str, address: str, backends: Sequence[str], file: Path) -> Path:
    text = (ROOT / "deploy" / shipped).read_text()
    for old, new in zip((LISTENING, *BACKENDS), (address, *backends), strict=True):
        text, count = re.subn(rf"(?<=\s){re.escape(old)}(?=[\s;])", new, text)
        assert count == 1, (old, count)
    file.write_text(text)
    return file


@contextmanager
def haproxying(backends: Sequence[str], folder: Path) -> Iterator[str]:
    """Where it listens."""
    require("haproxy")
    address = f"127.0.0.1:{free_port()}"
    file = _configured("haproxy/haproxy.cfg", address, backends, folder / "haproxy.cfg")
    with Program(["haproxy", "-db", "-f", file]):
        yield address


@contextmanager
def nginxing(backends: Sequence[str], folder: Path) -> Iterator[str]:
    """Where it listens."""
    require("nginx")
    address = f"127.0.0.1:{free_port()}"
    file = _configured("nginx/nginx.conf", address, backends, folder / "nginx.conf")
    with Program(["nginx", "-p", folder, "-c", file, "-g", "daemon off;"]):
        yield address
