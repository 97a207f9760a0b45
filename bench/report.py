"""A run's figures as tables for people and as JSON for programs."""

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from rich.table import Table

from bench.benchmark import PassResult
from bench.statistics import Distribution
from bench.workload import Workload


def as_json(workload: Workload, address: str, passes: Sequence[PassResult]) -> dict[str, Any]:
    """What was asked for, where, and what came out."""
    return {
        "sluicegate_version": version("sluicegate"),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "platform": platform.platform(), "processor": platform.processor()},
        "address": address,
        "workload": asdict(workload),
        "passes": [_figures(each) for each in passes],
    }


def _figures(result: PassResult) -> dict[str, Any]:
    figures = asdict(replace(result, records=()))
    del figures["records"]
    return figures


def as_table(result: PassResult) -> Table:
    """Totals in the first column; where there is a distribution, its median and tail."""
    table = Table("", "median", "p90", "p99")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, *figures in distribution_rows(result):
        table.add_row(name, *figures)
    table.add_section()
    for name, value in totals(result):
        table.add_row(name, value)
    return table


def distribution_rows(result: PassResult) -> Iterator[tuple[str, str, str, str]]:
    """Name, median, p90 and p99, as texts; dashes where no request succeeded."""
    for name, values in _distributions(result):
        if not result.summary.num_output_tokens:
            yield name, "-", "-", "-"
            continue
        yield name, _number(values.median), _number(values.p90), _number(values.p99)


def _number(value: float) -> str:
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}"


def title(workload: Workload, pass_name: str) -> str:
    """One line that says what was measured."""
    load = f"concurrency {workload.concurrency}" if workload.rate is None else f"{workload.rate:g} requests/s"
    shared = f" ({workload.shared_prefix_tokens} shared)" if workload.shared_prefix_tokens else ""
    name = f"{workload.name} {pass_name}".strip()
    return f"{name}: {workload.prompt_tokens}{shared} prompt + {workload.output_tokens} output tokens, {load}"


def _distributions(result: PassResult) -> Iterator[tuple[str, Distribution]]:
    summary = result.summary
    yield "TTFT, ms", summary.ttft_ms
    yield "ITL, ms", summary.itl_ms
    yield "output tokens/s of a request", summary.request_tokens_per_s
    yield "prefill tokens/s of a request", summary.prefill_tokens_per_s
    if result.lateness_ms is not None:
        yield "behind the pace, ms", result.lateness_ms


def totals(result: PassResult) -> Iterator[tuple[str, str]]:
    """Name and value of what there is one of, as texts."""
    summary = result.summary
    yield "output tokens/s in all", f"{summary.output_tokens_per_s:,.1f}"
    yield "duration, s", f"{summary.duration_s:,.2f}"
    yield "requests", f"{summary.num_requests:,}"
    yield "failed", ", ".join(f"{count} {code}" for code, count in summary.errors.items()) or "0"
    yield "prompt tokens", f"{summary.num_prompt_tokens:,}"
    yield "of them cached", f"{summary.num_cached_tokens:,}"
    yield "output tokens", f"{summary.num_output_tokens:,}"
    yield "tokens per message", f"{summary.tokens_per_message:.2f}"
    if result.gateway_cpu_s is not None:
        yield "gateway CPU, s", f"{result.gateway_cpu_s:.2f}"
        yield "gateway CPU, µs/token", f"{result.gateway_cpu_s / max(summary.num_output_tokens, 1) * 1e6:,.0f}"
