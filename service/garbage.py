"""Python's search for garbage that refers to itself, kept from what a gateway has for good."""

import gc

_NEW_OBJECTS = 10_000
"""Between two searches among the youngest. A busy gateway makes as many in a few milliseconds, and frees nearly all."""


def spare_collector() -> None:
    """All that is here now is not looked at any more, and what is young less often than by default.

    For a process that has loaded: every search would visit modules, tokenizer and tables, and find nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
