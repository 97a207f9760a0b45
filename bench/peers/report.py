"""A comparison as tables for people and as JSON for programs."""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.table import Table

from bench.peers.limits import Limits, ModelSize, Rates
from bench.peers.measure import Round
from bench.peers.metrics import METRICS, compare, limits_of, medians
from bench.peers.peer import Family, Peer

Results = Mapping[str, Sequence[Round]]
"""The rounds of each peer by its name."""


class Report:
    """Of ``peers`` that have results; ``rates`` are the machine's."""

    def __init__(self, peers: Sequence[Peer], results: Results, rates: Rates, model: ModelSize) -> None:
        self.peers = [peer for peer in peers if results.get(peer.name)]
        self._results = results
        self._rates = rates
        self.figures = {peer.name: medians(results[peer.name]) for peer in self.peers}
        self.limits = {family: limits_of(Limits(family, rates, model)) for family in Family}

    def tables(self) -> Iterator[Table]:
        """Figures beside the machine's limits; how far each is from its limit; ours against the best."""
        yield self._figures_table()
        yield self._limits_table()
        yield self._ratios_table()

    def _figures_table(self) -> Table:
        table = _table("medians", [metric.title for metric in METRICS])
        for family in Family:
            for peer in self._of(family):
                table.add_row(peer.name, *self._cells(self.figures[peer.name], _number))
            table.add_row(f"limit, {family}", *self._cells(self.limits[family], _number), style="dim")
            table.add_section()
        return table

    def _limits_table(self) -> Table:
        titles = {metric.title: metric for metric in METRICS if metric.limit is not None}
        table = _table("times the machine's limit", [*titles])
        for family in Family:
            for peer in self._of(family):
                figures = self.figures[peer.name]
                distances = {
                    title: metric.ratio(self.limits[family][title], figures[title])
                    for title, metric in titles.items()
                    if title in figures
                }
                table.add_row(peer.name, *(_times(distances.get(title)) for title in titles))
            table.add_section()
        return table

    def _ratios_table(self) -> Table:
        table = Table("", "figure", "times better than the best other", "which is", title="ours and the others")
        for each in compare(self.peers, self.figures):
            table.add_row(each.ours, each.metric.title, f"{each.ratio:.2f}", each.other)
        return table

    def _of(self, family: Family) -> list[Peer]:
        return [peer for peer in self.peers if peer.family is family]

    def _cells(self, figures: Mapping[str, float], text: Any) -> list[str]:
        return [text(figures.get(metric.title)) for metric in METRICS]

    def as_json(self) -> dict[str, Any]:
        """All rounds with all distributions, too."""
        return {
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {"cpus": os.cpu_count(), "platform": platform.platform(), **asdict(self._rates)},
            "limits": self.limits,
            "ratios": [
                {"figure": each.metric.title, "ours": each.ours, "best_other": each.other, "times_better": each.ratio}
                for each in compare(self.peers, self.figures)
            ],
            "peers": {
                peer.name: {
                    "family": peer.family,
                    "settings": peer.settings,
                    "medians": self.figures[peer.name],
                    "rounds": [asdict(done) for done in self._results[peer.name]],
                }
                for peer in self.peers
            },
        }


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table("", title=title)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
