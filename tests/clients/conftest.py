from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from sluicegate.v1.control_service_pb2_grpc import add_ControlServiceServicer_to_server
from tests.clients.fake_control import FakeControlService
from tests.clients.fake_server import FakeServer, fake_server


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as server:
        yield server


@pytest.fixture
def admin_address() -> Iterator[str]:
    """Of a server that only keeps adapters."""
    server = grpc.server(ThreadPoolExecutor(2))
    add_ControlServiceServicer_to_server(FakeControlService(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()
