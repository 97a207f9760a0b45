"""The command-line options that say which hosts share a model."""

import functools
import os
from collections.abc import Callable
from typing import Any

import click

from core.hosts import DEFAULT_MASTER_PORT, find_hosts
from core.process_options import option

_AT_LEAST_ONE = click.IntRange(min=1)
_OPTIONS = [
    option(
        "--tensor-parallel-size",
        type=_AT_LEAST_ONE,
        default=1,
        help="Processes that share the model, each with a part of every layer; on cuda each has a GPU.",
    ),
    option("--nnodes", type=_AT_LEAST_ONE, help="Hosts that share the model. Default: what started them says, or 1."),
    option(
        "--node-rank",
        type=click.IntRange(min=0),
        help="Of this host; those above 0 only run ranks. Default: as with --nnodes, or 0.",
    ),
    option("--master-addr", metavar="HOST", help="Of host 0, which listens there. Default: as with --nnodes."),
    option(
        "--master-port",
        type=click.IntRange(1, 65535),
        help=f"Its port, plus the data-parallel rank. Default: as with --nnodes, or {DEFAULT_MASTER_PORT}.",
    ),
]


def hosts_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as one ``hosts`` argument."""

    @functools.wraps(command)
    def with_hosts(
        tensor_parallel_size: int,
        nnodes: int | None,
        node_rank: int | None,
        master_addr: str | None,
        master_port: int | None,
        data_parallel_rank: int,
        **others: Any,
    ) -> Any:
        told = (tensor_parallel_size, nnodes, node_rank, master_addr, master_port)
        try:
            hosts = find_hosts(*told, os.environ).of_core(data_parallel_rank)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        return command(hosts=hosts, data_parallel_rank=data_parallel_rank, **others)

    for add_option in reversed(_OPTIONS):
        with_hosts = add_option(with_hosts)
    return with_hosts
