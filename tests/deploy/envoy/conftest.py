from tests.e2e.conftest import client, pytest_runtest_makereport, server
from tests.service.conftest import byte_model

__all__ = ["byte_model", "client", "pytest_runtest_makereport", "server"]
