"""Standard input, output and error, for a process that was started without them (``2>&-``, some supervisors).

Their numbers would go to the first things that are opened, such as the signalling descriptors of zmq and gRPC; what is
written to standard error then lands in these, and the process aborts.
"""

import os
import sys


def open_standard_files() -> None:
    """Open the null device in place of each that is closed. To be called before anything else is opened."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
