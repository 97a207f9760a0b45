"""What each process holds of what is bounded for all together."""

import os
import subprocess
import sys

from service.workers.shared_counts import SharedCounts, new_memory

_CHILD = """
import sys
from service.workers.shared_counts import SharedCounts
counts = SharedCounts(int(sys.argv[1]), 3, 2, row=1)
assert counts.column(0).held == 5
counts.column(0).tell(7)
counts.column(1).tell(2**40)
"""


def test_processes_see_each_others_counts() -> None:
    """Each writes its own and reads those of the others; what a process held is gone when it is cleared."""
    fd = new_memory(3, 2)
    mine = SharedCounts(fd, 3, 2)
    mine.column(0).tell(5)
    assert mine.column(0).held == 0
    subprocess.run([sys.executable, "-c", _CHILD, str(fd)], pass_fds=[fd], check=True)
    os.close(fd)
    assert (mine.column(0).held, mine.column(1).held) == (7, 2**40)
    mine.clear(1)
    assert (mine.column(0).held, mine.column(1).held) == (0, 0)
