"""The collector of a process that has loaded."""

import subprocess
import sys

SCRIPT = """
import gc, weakref
from service.garbage import spare_collector
class Node: pass
spare_collector()
assert gc.get_freeze_count() > 1000, gc.get_freeze_count()
node = Node(); node.self = node; gone = weakref.ref(node); del node
gc.collect()
assert gone() is None
assert gc.get_threshold()[0] == 10_000
"""


def test_what_is_there_is_left_alone_and_what_comes_is_not() -> None:
    """In a process of its own: it is for good."""
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
