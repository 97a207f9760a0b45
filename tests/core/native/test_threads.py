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


def run(script: str, name: str) -> subprocess.CompletedProcess[str]:
    """With the kernels ``name``. Newer Pythons warn of forks: that is what is tried."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, name]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("name", runnable_kernels())
@pytest.mark.parametrize("script", [PREPARE, PREPARE + ENDS_WHILE_COMPUTING, PREPARE + FORKS])
def test_a_process_ends_as_it_should(name: str, script: str) -> None:
    """While its threads sleep, while they compute, and as the child of one, which has none but its own."""
    ended = run(script, name)
    assert (ended.returncode, ended.stderr) == (0, "")


ATTENDS = """
import resource, sys
import numpy as np
from core.native import find_kernels
from tests.core.native.test_decoder_arguments import CACHE_SIZE, HIDDEN, NUM_BLOCKS, make_decoder, spans
kernels = find_kernels(sys.argv[1])
decoder, num_blocks, start, count = make_decoder(kernels), 4096, 64_512, 1024
keys, values = (np.ones(CACHE_SIZE // NUM_BLOCKS * num_blocks, np.float32) for _ in range(2))
cache, tables = kernels.PagedCache([keys], [values], [0], 16), [np.arange(num_blocks, dtype=np.int32)[None]]
results = []
for num_threads in (1, 6):
    kernels.set_num_threads(num_threads)
    hidden = np.random.default_rng(0).standard_normal((count, HIDDEN)).astype(np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    decoder.forward(hidden, spans((count, start)), tables, cache)
    results.append(hidden)
assert (results[0] == results[1]).all()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("name", runnable_kernels())
def test_many_threads_take_little_more_memory(name: str) -> None:
    """What they keep for each other of a long context is bounded, in MiB, and changes no bit."""
    ended = run(ATTENDS, name)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) < 80
