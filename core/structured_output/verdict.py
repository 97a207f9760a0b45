"""What the trial process answers."""

import msgspec

MAX_CPU_S = 2.0
"""What a trial may take of a CPU."""


class Verdict(msgspec.Struct):
    """``grammar`` for llguidance, or what is wrong with the form."""

    grammar: str | None = None
    fault: str = ""
