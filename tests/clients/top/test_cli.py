"""`sluicegate top` against a server."""

import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from click.testing import CliRunner

from sluicegate.v1 import control_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import add_ControlServiceServicer_to_server
from sluicegate_client.top.cli import top
from tests.clients.fake_control import FakeControlService, a_load
from tests.clients.test_cli import SLUICEGATE, SOON_S


class OneLookService(FakeControlService):
    """Stays silent after the first load."""

    def WatchLoad(self, request: pb.WatchLoadRequest, context: Any) -> Iterator[pb.WatchLoadResponse]:  # noqa: N802, ARG002
        yield pb.WatchLoadResponse(load=a_load(100))
        ended = threading.Event()
        context.add_callback(ended.set)
        ended.wait(SOON_S)


def test_looks_one_below_the_other(admin_address: str) -> None:
    """Without a terminal each look is printed; the end of the server is an error."""
    done = CliRunner().invoke(top, ["--admin-address", admin_address])
    assert done.output.count("words at 127.0.0.1:1") == 3
    assert (done.exit_code, "the server has stopped" in done.output) == (1, True)


def test_so_many_looks(admin_address: str) -> None:
    """--count ends it well."""
    done = CliRunner().invoke(top, ["--admin-address", admin_address, "--count", "2"])
    assert (done.output.count("words at"), done.exit_code) == (2, 0)


def test_nobody_there() -> None:
    """One line says where nobody is."""
    done = CliRunner().invoke(top, ["--admin-address", "127.0.0.1:9"])
    assert done.exit_code == 1
    assert "127.0.0.1:9" in done.output
    assert "Traceback" not in done.output


def test_ctrl_c_ends_it_well() -> None:
    """As its help says: with exit code 0, and nothing on standard error."""
    server = grpc.server(ThreadPoolExecutor(2))
    add_ControlServiceServicer_to_server(OneLookService(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    command = [SLUICEGATE, "top", "--admin-address", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"words at")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=SOON_S)
    assert (process.returncode, stderr) == (0, b"")
    server.stop(None).wait()
