"""What the tests of the container say while they run, for whoever watches, and once more together at their end."""

import time

_START = time.monotonic()
LINES: list[str] = []


def say(text: str) -> None:
    """A line, with the seconds since the start."""
    for line in text.splitlines():
        LINES.append(f"{time.monotonic() - _START:6.1f} s  {line}")
        print(LINES[-1], flush=True)
