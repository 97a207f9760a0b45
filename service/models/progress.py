"""How far something that takes a while has come."""

from collections.abc import Callable
from typing import NamedTuple


class Progress(NamedTuple):
    """``done`` of ``total`` bytes; both 0 where there is nothing to count."""

    what: str
    done: int = 0
    total: int = 0


Report = Callable[[Progress], None]
