"""How many cores there are, and how long each may take."""

import sys

import click

from service.cli.option_group import OptionGroup
from service.config import MAX_DATA_PARALLEL_SIZE, CoreTerms

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
    core_load_timeout: float, core_ping_timeout: float, data_parallel_size: int, data_parallel_lockstep: bool
) -> CoreTerms:
    return CoreTerms(
        load_timeout_s=core_load_timeout,
        ping_timeout_s=core_ping_timeout,
        data_parallel_size=data_parallel_size,
        coordinator_command=COORDINATOR_COMMAND if data_parallel_lockstep else (),
    )


CORES = OptionGroup("core", "Cores", _OPTIONS, _read)
