import logging
from collections.abc import AsyncIterator

import pytest

from tests.service.calls.lines import Lines


@pytest.fixture
async def lines(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Lines]:
    handler = Lines()
    logging.getLogger("service").addHandler(handler)
    with caplog.at_level("INFO", "service"), caplog.at_level("INFO", "service.access"):
        yield handler
    logging.getLogger("service").removeHandler(handler)
