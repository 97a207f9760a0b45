"""The log of a gateway in this process."""

import asyncio
import logging
from typing import Any

from service.logs import CallFilter


class Lines(logging.Handler):
    """The lines of the gateway, as its own handler marks them."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(CallFilter())
        self.records: list[logging.LogRecord] = []
        self._accesses: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        if record.name == "service.access":
            self._accesses.put_nowait(vars(record))

    async def next_access(self) -> dict[str, Any]:
        """The line of the next call that ends, which its client may learn a moment earlier."""
        async with asyncio.timeout(10):
            return await self._accesses.get()
