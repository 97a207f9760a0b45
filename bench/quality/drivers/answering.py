"""What the drivers share.

A line of standard input has the passes over a window, each a list of tokens, and the path to which the logits of all
its tokens are to be saved; a line of standard output says that they are.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Passes = Sequence[Sequence[int]]


def answer(logits: Callable[[Passes], NDArray[np.float32]]) -> None:
    """Until standard input ends. ``logits`` gives [tokens, vocabulary]."""
    # Libraries print; what they do goes to standard error.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        window = json.loads(line)
        np.save(window["path"], logits(window["passes"]))
        print("saved", file=answers)
