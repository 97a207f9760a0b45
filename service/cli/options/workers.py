"""How many processes the gateway is."""

import sys

import click

from service.cli.option_group import OptionGroup
from service.config import MAX_GATEWAY_WORKERS, WorkersConfig

WORKER_COMMAND = (sys.executable, "-P", "-m", "service.workers")
"""``-P`` as for a core."""
_OPTIONS = [
    click.option(
        "--gateway-workers",
        type=click.IntRange(1, MAX_GATEWAY_WORKERS),
        default=1,
        help="Processes that share the --grpc-address and the cores: more where one has no CPU left for the streams.",
    ),
]


def _read(gateway_workers: int) -> WorkersConfig:
    return WorkersConfig(gateway_workers, WORKER_COMMAND)


WORKERS = OptionGroup("workers", "Processes", _OPTIONS, _read)
