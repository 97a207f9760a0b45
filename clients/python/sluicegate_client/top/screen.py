"""A view as a picture for the terminal."""

from collections import deque
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sluicegate_client.top.view import Latency, RankView, View

_SPARKS = "▁▂▃▄▅▆▇█"
_NUM_SPARKS = 60
_ALMOST_FULL = 0.9
_NOTHING = "-"


class Screen:
    """Draws views of the server called ``name``; the curve of tokens/s is of those drawn before."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rates: deque[float] = deque(maxlen=_NUM_SPARKS)

    def draw(self, view: View) -> RenderableType:
        """The picture, a dozen lines high and one more for each core."""
        self._rates.append(view.output_tokens_per_s)
        return Group(Text(self._name, style="bold"), _figures(view), self._curve(), _cores(view.ranks))

    def _curve(self) -> Text:
        curve = Text(sparkline(self._rates), style="green")
        return curve.append(f"  output tokens/s, at most {_count(max(self._rates))}", style="dim")


def sparkline(values: Iterable[float]) -> str:
    """One block for each value, the highest of them full."""
    values = [*values]
    highest = max(values, default=0.0)
    if highest <= 0:
        return _SPARKS[0] * len(values)
    return "".join(_SPARKS[round(value / highest * (len(_SPARKS) - 1))] for value in values)


def _figures(view: View) -> Table:
    table = Table.grid(padding=(0, 3))
    hit_rate = _NOTHING if view.prefix_hit_rate is None else f"{view.prefix_hit_rate:.0%}"
    waiting = Text(f"{view.load.num_waiting:,}", style="yellow" if view.load.num_waiting else "")
    preempted = Text(f"{view.num_preemptions:,}", style="red" if view.num_preemptions else "")
    table.add_row("requests", f"{view.load.num_requests:,}", "output tokens/s", _count(view.output_tokens_per_s))
    table.add_row("running", f"{view.load.num_running:,}", "prompt tokens/s", _count(view.prompt_tokens_per_s))
    table.add_row("waiting", waiting, "TTFT, median / p99", _latency(view.time_to_first_token))
    table.add_row("preempted", preempted, "ITL, median / p99", _latency(view.inter_token_latency))
    table.add_row("prefix hits", hit_rate, "KV cache", _usage(view.load.kv_cache_usage))
    return table


def _cores(ranks: Iterable[RankView]) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0))
    for column in ("core", "running", "waiting", "output tokens/s", "prompt tokens/s", "KV cache"):
        table.add_column(column, justify="left" if column in ("core", "KV cache") else "right", header_style="dim")
    for rank in ranks:
        name = Text(str(rank.load.rank)) if rank.load.is_answering else Text(f"{rank.load.rank} silent", style="red")
        counts = f"{rank.load.num_running:,}", f"{rank.load.num_waiting:,}"
        rates = _count(rank.output_tokens_per_s), _count(rank.prompt_tokens_per_s)
        table.add_row(name, *counts, *rates, _usage(rank.load.kv_cache_usage))
    return table


def _usage(part: float) -> Table:
    bar = ProgressBar(total=1, completed=part, width=20, complete_style="red" if part >= _ALMOST_FULL else "cyan")
    usage = Table.grid(padding=(0, 1))
    usage.add_row(bar, f"{part:.0%}")
    return usage


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def _latency(latency: Latency) -> str:
    return f"{_seconds(latency.median_s)} / {_seconds(latency.p99_s)}"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return _NOTHING
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
