"""Process 1 of a container: the kernel withholds from it every signal that it has no handler for.

The handlers of gateway and core come after a second of imports. A SIGTERM before that would be lost, and whoever sent
it would wait for the whole of its grace period.
"""

import os
import signal
from types import FrameType


def end_at_sigterm() -> None:
    """Raise SystemExit where SIGTERM ends any other process. To be called before what takes long is imported."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end)


def _end(signum: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)
