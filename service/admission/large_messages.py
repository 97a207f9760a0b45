"""Decoding large messages: nothing else runs meanwhile, in no thread, so there is room for others in between."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

LARGE_FROM_BYTES = 2**18
"""Smaller ones take a millisecond or two."""


class LargeMessages:
    """One at a time, and after each a pause as long as it took: a health check comes through in the pause."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def decode(self, decode: Callable[[bytes], Any], message: bytes) -> Any:
        """What ``decode`` makes of ``message``, or raises."""
        if len(message) < LARGE_FROM_BYTES:
            return decode(message)
        async with self._turn:
            start = time.perf_counter()
            try:
                return decode(message)
            finally:
                await asyncio.sleep(time.perf_counter() - start)
