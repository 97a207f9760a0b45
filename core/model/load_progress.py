"""Tells the log how far a long load has come."""

import logging
import time
from collections.abc import Callable, Iterator

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
