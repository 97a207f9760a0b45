"""How many cores there are, and how long each may take."""

import math
import sys

import click

from service.cli.option_group import OptionGroup
from service.config import MAX_DATA_PARALLEL_SIZE, CoreTerms


class SecondsOrOff(click.ParamType[float]):
    """``30`` or ``off``, which is for ever."""

    name = "seconds"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if value == "off":
            return math.inf
        try:
            seconds = float(str(value))
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < math.inf:
            self.fail(f"{value!r} is neither a number of seconds above 0 nor off", param, ctx)
        return seconds


COORDINATOR_COMMAND = (sys.executable, "-P", "-m", "core.data_parallel")
"""``-P`` as for a core."""
_OPTIONS = [
    click.option(
        "--core-load-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=600.0,
        metavar="SECONDS",
        help="How long to wait for the cores to be ready.",
    ),
    click.option(
        "--core-ping-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=30.0,
        metavar="SECONDS",
        help="How long a core may say nothing, though asked, until the server is NOT_SERVING; longer than any step.",
    ),
    click.option(
        "--max-core-restarts",
        type=click.IntRange(min=0),
        default=10,
        help="How often within ten minutes a lost core is replaced and its requests go on; 0: the server ends.",
    ),
    click.option(
        "--core-restart-wait",
        type=click.FloatRange(min=0),
        default=30.0,
        metavar="SECONDS",
        help="How long new requests wait while there is no core; 0: they are refused at once.",
    ),
    click.option(
        "--core-stuck-timeout",
        type=SecondsOrOff(),
        metavar="SECONDS",
        help="How long a core may say nothing until it is killed and replaced, or off.  [default: 4 ping timeouts]",
    ),
    click.option(
        "--data-parallel-size",
        type=click.IntRange(1, MAX_DATA_PARALLEL_SIZE),
        default=1,
        help="Cores, each with the whole model, that share the requests.",
    ),
    click.option(
        "--data-parallel-lockstep",
        is_flag=True,
        help="For mixture-of-experts models, whose ranks step together. Rank 0 must run on the gateway's machine.",
    ),
]


def _read(
    core_load_timeout: float,
    core_ping_timeout: float,
    max_core_restarts: int,
    core_restart_wait: float,
    core_stuck_timeout: float | None,
    data_parallel_size: int,
    data_parallel_lockstep: bool,
) -> CoreTerms:
    return CoreTerms(
        load_timeout_s=core_load_timeout,
        ping_timeout_s=core_ping_timeout,
        max_restarts=max_core_restarts,
        restart_wait_s=core_restart_wait,
        stuck_timeout_s=core_stuck_timeout,
        data_parallel_size=data_parallel_size,
        coordinator_command=COORDINATOR_COMMAND if data_parallel_lockstep else (),
    )


CORES = OptionGroup("core", "Cores", _OPTIONS, _read)
