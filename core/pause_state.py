"""What a pause of the scheduler holds back."""

import enum
from typing import Literal

PauseMode = Literal["abort", "wait", "keep"]


class PauseState(enum.Enum):
    """Nothing, requests that do not run yet, or every request."""

    UNPAUSED = enum.auto()
    PAUSED_NEW = enum.auto()
    PAUSED_ALL = enum.auto()
