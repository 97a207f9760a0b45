"""`python -m service.workers`: one more process of a gateway, started by it."""

import os
import socket
import sys
import threading
import time

import click
import setproctitle
import uvloop

from core.wire.log_lines import LogFormat
from service.logs import configure_logging

_LAST_WORK_S = 5.0
"""For what a worker still does when the primary is gone."""


@click.command()
@click.option("--number", type=int, required=True)
@click.option("--channel-fd", type=int, required=True)
@click.option("--counts-fd", type=int, required=True)
@click.option("--lifeline-fd", type=int, required=True)
@click.option("--log-level", default="info")
@click.option("--log-format", default="text")
@click.option("--access-log/--no-access-log")
def main(
    number: int,
    channel_fd: int,
    counts_fd: int,
    lifeline_fd: int,
    log_level: str,
    log_format: LogFormat,
    access_log: bool,
) -> None:
    """Started by `sluicegate serve` and `sluicegate gateway`, with the ends of what leads to them."""
    configure_logging(log_level, log_format, access_log)
    setproctitle.setproctitle(f"sluicegate: gateway worker {number}")
    threading.Thread(target=_end_with_primary, args=(lifeline_fd,), name="lifeline", daemon=True).start()
    from service.workers.worker import work

    sys.exit(uvloop.run(work(socket.socket(fileno=channel_fd), counts_fd)))


def _end_with_primary(lifeline_fd: int) -> None:
    """Even if the event loop is stuck."""
    os.read(lifeline_fd, 1)
    time.sleep(_LAST_WORK_S)
    os._exit(1)


if __name__ == "__main__":
    main()
