"""The bound of every time-out."""

MAX_TIMEOUT_S = 1e6
