"""How the cost of a call grows with what it works on, measured so that a busy machine does not matter."""

import gc
import time
from collections.abc import Callable


def growth(make_call: Callable[[int], Callable[[], object]], size: int) -> float:
    """How many times longer a call takes at four times the ``size``: about 4 if linear, 16 if quadratic."""
    return _cost(make_call, 4 * size) / _cost(make_call, size)


def _cost(make_call: Callable[[int], Callable[[], object]], size: int) -> float:
    """Processor time in seconds, the lesser of two."""
    costs = []
    for call in [make_call(size) for _ in range(2)]:
        gc.disable()
        start = time.process_time()
        call()
        costs.append(time.process_time() - start)
        gc.enable()
    return min(costs)
