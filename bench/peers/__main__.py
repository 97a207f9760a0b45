"""``python -m bench.peers``: engines side by side, alternating; ``python -m bench.peers install``: the others."""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from bench.gateways.model_option import model_option
from bench.page import PlotsMissingError, check_plots
from bench.peers.catalog import PEERS
from bench.peers.environment import PeerEnvironment
from bench.peers.limits import ModelSize, Rates, measure_rates
from bench.peers.measure import Round, log_folder, measure, share_of_round
from bench.peers.peer import Peer, PeerError, Place
from bench.peers.recipes import RECIPES
from bench.peers.report import Report
from bench.workload import WORKLOADS, Workload

_TABLE_WIDTH = 200
_WORKLOADS = ("W1", "W2", "W3", "W4")


@click.group(
    invoke_without_command=True, context_settings={"show_default": True, "help_option_names": ["-h", "--help"]}
)
@click.option("--peers", multiple=True, type=click.Choice([*PEERS]), help="Which; repeatable.  [default: all]")
@click.option("--workloads", multiple=True, type=click.Choice(_WORKLOADS), default=_WORKLOADS, help="Repeatable.")
@click.option("--repeat", type=click.IntRange(min=1), default=3, help="Rounds; medians are reported.")
@click.option("--threads", type=click.IntRange(min=1), default=2, help="That each engine computes with.")
@model_option
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures there.")
@click.option(
    "--report",
    "report_folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the figures and a plot of them into this folder: peers.json, peers.png.",
)
@click.pass_context
def main(
    context: click.Context,
    peers: Sequence[str],
    workloads: Sequence[str],
    repeat: int,
    threads: int,
    model: Path,
    json_path: Path | None,
    report_folder: Path | None,
) -> None:
    """Compare our server with other engines on this machine: the same model, prompts, lengths and threads.

    Every round starts each engine afresh and sends it the workloads, so that what else the machine does falls on all
    of them. What is not installed is left out.
    """
    if context.invoked_subcommand is not None:
        return
    if report_folder is not None:
        _check_plots()
    chosen = _installed([PEERS[name] for name in peers or PEERS])
    loads = [share_of_round(WORKLOADS[name], repeat) for name in workloads]
    report = _run(chosen, loads, repeat, threads, model)
    console = Console(width=_TABLE_WIDTH)
    for table in report.tables():
        console.print(table)
    if json_path is not None:
        _write_json(report, json_path)
    if report_folder is not None:
        _write_report(report, report_folder)


def _check_plots() -> None:
    """Now, not when a long run has ended."""
    try:
        check_plots()
    except PlotsMissingError as error:
        raise click.ClickException(str(error)) from error


def _installed(peers: Sequence[Peer]) -> list[Peer]:
    for peer in peers:
        if not peer.is_installed:
            click.echo(f"{peer.name} is left out: python -m bench.peers install {peer.name}", err=True)
    return [peer for peer in peers if peer.is_installed]


def _run(peers: Sequence[Peer], workloads: Sequence[Workload], repeat: int, threads: int, model: Path) -> Report:
    results: dict[str, list[Round]] = {peer.name: [] for peer in peers}
    rates: list[Rates] = []
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as folder:
        for number in range(repeat):
            rates.append(measure_rates(threads))
            click.echo(f"round {number + 1} of {repeat}: {rates[-1]}", err=True)
            for peer in peers:
                place = Place(log_folder(Path(folder), peer, number), model, threads)
                _run_one(peer, place, workloads, number, results[peer.name])
        size = ModelSize.of(place.gguf)
    return Report(peers, results, Rates.best(rates), size)


def _run_one(peer: Peer, place: Place, workloads: Sequence[Workload], number: int, results: list[Round]) -> None:
    def tell(what: str) -> None:
        click.echo(f"  {peer.name}: {what}", err=True)

    try:
        results.append(asyncio.run(measure(peer, place, workloads, number, tell)))
    except PeerError as error:
        tell(str(error))
        return
    tell(f"start: {results[-1].start_s:.1f} s")


def _write_json(report: Report, path: Path) -> None:
    path.write_text(json.dumps(report.as_json(), indent=2) + "\n")


def _write_report(report: Report, folder: Path) -> None:
    from bench.peers.plots import draw

    folder.mkdir(parents=True, exist_ok=True)
    _write_json(report, folder / "peers.json")
    (folder / "peers.png").write_bytes(draw(report))


@main.command()
@click.argument("names", nargs=-1, type=click.Choice([*RECIPES]), metavar="[NAME]…")
def install(names: Sequence[str]) -> None:
    """Put other engines into environments of their own in the cache; all of them without NAME. Whole ones stay."""
    for name in names or RECIPES:
        environment = PeerEnvironment(name)
        if environment.complete.exists():
            click.echo(f"{name}: in {environment.folder}")
            continue
        click.echo(f"{name}: installing into {environment.folder} …")
        try:
            environment.make()
            RECIPES[name](environment)
        except PeerError as error:
            raise click.ClickException(str(error)) from error
        environment.complete.touch()


if __name__ == "__main__":
    main()
