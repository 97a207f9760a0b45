"""Tells the log how far a long load has come."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)

_INTERVAL_S = 2.0


def logged_layers(num_layers: int, clock: Callable[[], float] = time.monotonic) -> Iterator[int]:
    """0, 1, … and a line every two seconds: a short load is silent, a long one is not mistaken for a hang."""
    last = clock()
    for layer in range(num_layers):
        if (now := clock()) - last >= _INTERVAL_S:
            last = now
            logger.info("loading weights: layer %d of %d", layer, num_layers)
        yield layer


@contextmanager
def logged_wait(what: str, interval_s: float = _INTERVAL_S) -> Iterator[None]:
    """The same for work that does not say how far it is: a line every two seconds while the block runs."""
    started, done = time.monotonic(), threading.Event()

    def tell() -> None:
        while not done.wait(interval_s):
            logger.info("%s, for %.0f s", what, time.monotonic() - started)

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
