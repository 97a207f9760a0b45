from collections.abc import Iterator

import pytest

from service.models import ModelFiles
from sluicegate_client import Client
from tests.deploy.envoy.null_server import NullServer, null_serving
from tests.service.conftest import byte_model

__all__ = ["byte_model"]


@pytest.fixture(scope="session")
def server(byte_model: ModelFiles) -> Iterator[NullServer]:
    with null_serving(byte_model, "What bytes say, é and 😀 too. ") as server:
        yield server


@pytest.fixture
def client(server: NullServer) -> Iterator[Client]:
    with Client(server.address) as client:
        yield client
