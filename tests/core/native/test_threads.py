"""The kernels' threads and the ends of processes."""

import subprocess
import sys

import pytest

from core.native import runnable_kernels

PREPARE = """
import os, sys, threading
import numpy as np
from core.native import find_kernels
kernels = find_kernels(sys.argv[1])
kernels.set_num_threads(3)
linear = kernels.Linear([kernels.pack_dense(np.ones((512, 512), np.float32))])
rows = np.ones((64, 512), np.float32)
def multiply():
    outputs = np.empty((64, 512), np.float32)
    linear.multiply(rows, outputs)
    return outputs
"""
ENDS_WHILE_COMPUTING = """
begun = threading.Event()
def multiply_for_ever():
    while True:
        multiply()
        begun.set()
threading.Thread(target=multiply_for_ever, daemon=True).start()
begun.wait()
"""
FORKS = """
expected = multiply()
child = os.fork()
assert (multiply() == expected).all()
if child:
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("name", runnable_kernels())
@pytest.mark.parametrize("script", [PREPARE, PREPARE + ENDS_WHILE_COMPUTING, PREPARE + FORKS])
def test_a_process_ends_as_it_should(name: str, script: str) -> None:
    """While its threads sleep, while they compute, and as the child of one, which has none but its own."""
    ended = subprocess.run(
        [sys.executable, "-c", script, name], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
