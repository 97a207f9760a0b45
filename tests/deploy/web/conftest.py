import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.envoy.proxy import ROOT, proxying, set_backends, set_page, shipped
from tests.deploy.web.browser import CHROMEDRIVER, Browser, browsing
from tests.e2e.conftest import client, pytest_runtest_makereport, server
from tests.e2e.server import Server
from tests.service.conftest import byte_model
from tests.toolchain import require

__all__ = ["byte_model", "client", "pytest_runtest_makereport", "server"]


@pytest.fixture(scope="session")
def page() -> Path:
    """The file that users get, made from the sources."""
    require("make", "npm")
    done = subprocess.run(["make", "--silent", "web"], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "deploy/web/dist/index.html"


@pytest.fixture(scope="session")
def session_browser(server: Server, page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    require("chromium", CHROMEDRIVER)
    config = shipped("grpc-web.yaml")
    set_page(config, page)
    set_backends(config, [server.address])
    driver_path = str(shutil.which(CHROMEDRIVER))
    with (
        proxying(config, tmp_path_factory.mktemp("envoy")) as envoy,
        browsing(f"http://{envoy.address}/", tmp_path_factory.mktemp("profile"), driver_path) as browser,
    ):
        yield browser


@pytest.fixture
def browser(session_browser: Browser) -> Browser:
    """It shows the page as it is at first, and has not complained yet."""
    session_browser.open()
    return session_browser
