"""The command `sluicegate bench`."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import uvloop
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

from bench.benchmark import Benchmark, PassResult, Target
from bench.page import PlotsMissingError, check_plots, write_report
from bench.report import as_json, as_table, title
from bench.workload import WORKLOADS, Workload
from sluicegate_client import SluicegateError
from sluicegate_client.access import API_KEY_VARIABLE, Access, access_options
from sluicegate_client.channel import DEFAULT_ADDRESS

_AT_LEAST_ONE = click.IntRange(min=1)
_POSITIVE = click.FloatRange(min=0, min_open=True)


@click.command(
    epilog="W1 single stream, W2 batch, W3 long prompt, W4 shared prefix (cold, then warm cache); G1 and G2 measure "
    "the gateway alone, on a null core: G1 paced (give --pace), G2 as fast as it can."
)
@click.option(
    "--workload",
    type=click.Choice([*WORKLOADS], case_sensitive=False),
    default="W1",
    show_default=True,
    help="What to start from.",
)
@click.option("--prompt-tokens", type=_AT_LEAST_ONE, help="Length of every prompt.")
@click.option("--shared-prefix-tokens", type=click.IntRange(min=0), help="Of them, how many all prompts share.")
@click.option("--output-tokens", type=_AT_LEAST_ONE, help="Length of every answer; EOS is ignored.")
@click.option("--num-requests", type=_AT_LEAST_ONE, help="Requests in all; at least the concurrency.")
@click.option("--concurrency", type=_AT_LEAST_ONE, help="Requests kept running (closed loop).")
@click.option("--rate", type=_POSITIVE, help="Requests/s arriving, Poisson (open loop), instead of --concurrency.")
@click.option("--seed", type=int, help="Of prompts and arrivals.")
@click.option("--timeout", type=_POSITIVE, default=600.0, show_default=True, help="Seconds for each request.")
@click.option("--gateway-pid", type=int, help="Also take the CPU time of this process, the gateway's.")
@click.option("--pace", type=_POSITIVE, help="Tokens/s of a null core's streams: also take how late tokens come.")
@click.option("--multiplexed", is_flag=True, help="Send all requests on one stream, by GenerateMultiplexed.")
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures there too."
)
@click.option(
    "--report",
    "report_folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write a page with figures and plots into this folder: index.html, run.json, PNGs.",
)
@click.option(
    "--address",
    default=DEFAULT_ADDRESS,
    show_default=True,
    envvar="SLUICEGATE_ADDRESS",
    show_envvar=True,
    help="Where the server is: HOST:PORT or unix:/path.",
)
@access_options(API_KEY_VARIABLE)
def bench(
    workload: str,
    address: str,
    access: Access,
    timeout: float,
    gateway_pid: int | None,
    pace: float | None,
    multiplexed: bool,
    json_path: Path | None,
    report_folder: Path | None,
    **changes: Any,
) -> None:
    """Put load on a server and report its speed: TTFT, time between tokens (ITL), tokens/s.

    Greedy requests of fixed length with prompts of random words, which no earlier run has left in the prefix cache.
    Exit code 1 when any request failed.
    """
    load = _changed(WORKLOADS[workload], changes)
    _check_files(json_path, report_folder)
    passes = _run(load, Target(address, timeout, gateway_pid, pace, access, multiplexed))
    console = Console()
    for each in passes:
        console.print(title(load, each.name), soft_wrap=True)
        console.print(as_table(each), "")
    figures = as_json(load, address, passes)
    if json_path is not None:
        json_path.write_text(json.dumps(figures, indent=2) + "\n")
    if report_folder is not None:
        console.print(f"Report: {write_report(report_folder, load, figures, passes)}", soft_wrap=True)
    if num_failed := sum(sum(each.summary.errors.values()) for each in passes):
        num_requests = sum(each.summary.num_requests for each in passes)
        raise click.ClickException(f"{num_failed} of {num_requests} requests failed")


def _check_files(json_path: Path | None, report_folder: Path | None) -> None:
    """Now, not when a long run has ended."""
    try:
        if json_path is not None:
            json_path.touch()
        if report_folder is not None:
            check_plots()
            report_folder.mkdir(parents=True, exist_ok=True)
    except (OSError, PlotsMissingError) as error:
        raise click.ClickException(str(error)) from error


def _changed(workload: Workload, changes: dict[str, Any]) -> Workload:
    given = {name: value for name, value in changes.items() if value is not None}
    given.setdefault("num_requests", max(workload.num_requests, given.get("concurrency", 1)))
    try:
        return replace(workload, **given)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _run(workload: Workload, target: Target) -> list[PassResult]:
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns()[:3], MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(workload.name, total=workload.num_requests * len(workload.passes))
        try:
            return uvloop.run(Benchmark(workload, target, lambda: progress.advance(task)).run())
        except SluicegateError as error:
            raise click.ClickException(str(error)) from error
