"""A gateway whose core makes tokens from nowhere: there in a second, and it says what a test wants to hear."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from bench.null_core import __name__ as null_core
from service.models import ModelFiles
from tests.interop.program import Program


class NullServer:
    """One that is ready at ``address``."""

    def __init__(self, gateway: Program) -> None:
        self.gateway = gateway
        self.address = gateway.wait_for_log(r"ready grpc=(\S+)")[1]


@contextmanager
def null_serving(model: ModelFiles, says: str, *flags: str) -> Iterator[NullServer]:
    """``model``: of bytes. Every answer is ``says``, over and over, with 200 bytes a second."""
    token_ids = ",".join(str(byte) for byte in says.encode())
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        handshake = ["--handshake-address", f"ipc://{folder}/handshake"]
        addresses = ["--grpc-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0", "--metrics-address", "off"]
        python = [sys.executable, "-m"]
        gateway = [*python, "service", "gateway", str(model.path), *handshake, *addresses, *flags]
        core = [*python, null_core, *handshake, "--tokens-per-second", "200", "--token-ids", token_ids]
        with Program(gateway, {"TMPDIR": folder}) as process, Program(core):
            yield NullServer(process)
