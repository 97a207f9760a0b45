"""Tells the log how far a long load has come."""

import logging
import time
from collections.abc import Iterator

logger = logging.getLogger(__name__)

_INTERVAL_S = 2.0


def logged_layers(num_layers: int) -> Iterator[int]:
    """0, 1, … and a line every two seconds: a short load is silent, a long one is not mistaken for a hang."""
    last = time.monotonic()
    for layer in range(num_layers):
        if time.monotonic() - last >= _INTERVAL_S:
            last = time.monotonic()
            logger.info("loading weights: layer %d of %d", layer, num_layers)
        yield layer
