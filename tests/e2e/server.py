"""A real server: `sluicegate serve` on ports of its own, with folders of its own."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
from google.protobuf.duration_pb2 import Duration

from bench.server_process import ServerProcess
from sluicegate.v1.control_service_pb2 import GetLoadRequest, Load, WatchLoadRequest
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub

MODEL = "smollm2-135m"
START_TIMEOUT_S = 120.0
EXIT_TIMEOUT_S = 60.0


class Server:
    """One that is ready. ``process`` holds its log, ``folder`` its sockets."""

    def __init__(self, process: ServerProcess, folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.address = process.wait_until_ready(START_TIMEOUT_S)

    @property
    def metrics_address(self) -> str:
        """Where Prometheus asks."""
        match = re.search(r"metrics on http://(\S+)/metrics", self.process.log)
        assert match is not None, self.process.log
        return match[1]

    @property
    def admin_address(self) -> str:
        """Where operators call."""
        return _admin_address(self.folder)

    def load(self) -> Load:
        """What ControlService says of requests and KV blocks."""
        with grpc.insecure_channel(self.admin_address) as channel:
            return ControlServiceStub(channel).GetLoad(GetLoadRequest(), timeout=10).load

    def wait_until_idle(self) -> Load:
        """Returns the load when no request is left, at the latest after 30 s."""
        with grpc.insecure_channel(self.admin_address) as channel:
            request = WatchLoadRequest(interval=Duration(nanos=100_000_000))
            for answer in ControlServiceStub(channel).WatchLoad(request, timeout=30):
                if answer.load.num_requests == answer.load.num_running == answer.load.num_waiting == 0:
                    return answer.load
        raise AssertionError("WatchLoad ended")


def _admin_address(folder: Path) -> str:
    return f"unix:{folder}/admin"


@contextmanager
def serving(*flags: str, model: str = MODEL, quantization: str | None = "none") -> Iterator[Server]:
    """Serves ``model`` until the block ends, and then kills what still lives. Raises ServerError with the log.

    In float32 if nothing else is said: the reference is. None is for engines that are not ours.
    """
    # Not under pytest's tmp_path: the path of a socket may have 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        addresses = ["--grpc-address", "127.0.0.1:0", "--admin-address", _admin_address(Path(folder))]
        addresses += ["--metrics-address", "127.0.0.1:0"]
        maths = [] if quantization is None else ["--quantization", quantization]
        with ServerProcess(["serve", model, *addresses, *maths, *flags], environment={"TMPDIR": folder}) as process:
            yield Server(process, Path(folder))
