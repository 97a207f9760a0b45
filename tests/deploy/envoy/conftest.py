from tests.e2e.conftest import client, pytest_runtest_makereport, server

__all__ = ["client", "pytest_runtest_makereport", "server"]
