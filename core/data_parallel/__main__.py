"""``python -m core.data_parallel --num-engines 2 --folder DIR``: the coordinator of data-parallel engines.

It says where it listens in one line of JSON on standard output, under the names that INIT has for the addresses.
"""

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import click
import setproctitle
import zmq

from core.data_parallel.coordinator import Coordinator
from core.logs import configure_logging
from core.wire.curve import CurveError, CurveServer, read_pair
from core.wire.log_lines import LogFormat
from core.wire.waves import CoordinatorAddresses


@click.command()
@click.option("--num-engines", type=click.IntRange(min=1), required=True, help="Engines to wait for before READY.")
@click.option("--folder", metavar="DIR", help="Listen on ipc sockets in this folder.")
@click.option("--host", metavar="HOST", help="Listen on tcp at this address of the machine, at any ports.")
@click.option(
    "--lifeline-fd",
    type=click.IntRange(min=0),
    help="Inherited read end of a pipe; when it ends, so does this process, which then outlives SIGTERM and SIGINT.",
)
@click.option("--curve-key", type=click.Path(path_type=Path), help="The gateway's pair of CURVE keys.")
@click.option("--curve-core-keys", type=click.Path(path_type=Path), help="Public CURVE keys of the engines.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text")
def main(
    num_engines: int,
    folder: str | None,
    host: str | None,
    lifeline_fd: int | None,
    curve_key: Path | None,
    curve_core_keys: Path | None,
    log_level: str,
    log_format: LogFormat,
) -> None:
    """Coordinate the waves of data-parallel engines."""
    setproctitle.setproctitle("sluicegate: DPCoordinator")
    configure_logging(log_level, log_format)
    # A service manager signals this process along with its gateway, whose drain still needs it.
    on_signal = _exit if lifeline_fd is None else signal.SIG_IGN
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, on_signal)
    try:
        curve = CurveServer(read_pair(curve_key), curve_core_keys) if curve_key and curve_core_keys else None
        coordinator = Coordinator(_addresses(folder, host), num_engines, curve)
    except CurveError as error:
        raise click.ClickException(str(error)) from error
    except zmq.ZMQError as error:
        raise click.ClickException(f"cannot listen: {error}") from error
    print(json.dumps(dataclasses.asdict(coordinator.addresses)), flush=True)
    try:
        coordinator.run(os.pipe()[0] if lifeline_fd is None else lifeline_fd)
    finally:
        coordinator.close()


def _addresses(folder: str | None, host: str | None) -> CoordinatorAddresses:
    if (folder is None) == (host is None):
        raise click.UsageError("give either --folder or --host")
    if folder is not None:
        names = ("coordinator_to_engines", "coordinator_from_engines", "coordinator_to_front_ends")
        return CoordinatorAddresses(*(f"ipc://{folder}/{name}" for name in names))
    return CoordinatorAddresses(*[f"tcp://[{host}]:0" if ":" in str(host) else f"tcp://{host}:0"] * 3)


def _exit(_signum: int, _frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
