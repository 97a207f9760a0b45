"""What the records of a run look like: four pictures of each pass."""

import io
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from bench.load import RequestRecord
from bench.statistics import inter_token_latencies_s

_WIDTH_IN, _HEIGHT_IN, _DPI = 12.0, 8.0, 110
_NUM_BINS = 60
_MAX_BARS = 256
"""More requests than that are drawn as a sample of them: a bar needs a pixel or two."""
_LONG_TAIL = 10.0
_BLUE, _ORANGE, _RED = "#2563a8", "#e08a1e", "#c0392b"


def draw(title: str, records: Sequence[RequestRecord]) -> bytes:
    """A PNG. Requests that failed are in the last picture alone."""
    figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), dpi=_DPI, layout="constrained")
    figure.suptitle(title)
    (rate, first), (between, life) = figure.subplots(2, 2)
    succeeded = [record for record in records if record.error is None and record.arrivals]
    start_s = min((record.start for record in records), default=0.0)
    _draw_rate(rate, succeeded, start_s)
    _draw_shares(first, "time to first token", [record.ttft_s * 1e3 for record in succeeded])
    latencies = [itl_s * 1e3 for record in succeeded for itl_s in inter_token_latencies_s(record)]
    _draw_shares(between, "time between tokens", latencies)
    _draw_lives(life, records, start_s)
    png = io.BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()


def _draw_rate(axes: Axes, records: Iterable[RequestRecord], start_s: float) -> None:
    arrivals = [arrival for record in records for arrival in record.arrivals]
    axes.set(title="output tokens per second", xlabel="seconds since the start")
    if not arrivals:
        return
    times_s, num_tokens = np.array(arrivals).T
    counts, edges = np.histogram(times_s - start_s, bins=_NUM_BINS, weights=num_tokens)
    axes.stairs(counts / np.diff(edges), edges, fill=True, color=_BLUE)
    axes.set_ylim(bottom=0)


def _draw_shares(axes: Axes, name: str, values_ms: Sequence[float]) -> None:
    """Which part of all took at most how long; the scale is logarithmic if there is a long tail."""
    axes.set(title=f"{name}: part that took at most so long", xlabel="ms", ylim=(0, 1))
    if not values_ms:
        return
    axes.ecdf(values_ms, color=_BLUE)
    if max(values_ms) > _LONG_TAIL * float(np.median(values_ms)):
        axes.set_xscale("symlog", linthresh=float(np.median(values_ms)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.set_xlim(left=0)
    for part, color in ((50, _ORANGE), (99, _RED)):
        quantile = float(np.percentile(values_ms, part))
        axes.axvline(quantile, color=color, linestyle="--", label=f"p{part}: {quantile:,.1f} ms")
    axes.legend(loc="lower right")


def _draw_lives(axes: Axes, records: Sequence[RequestRecord], start_s: float) -> None:
    step = -(-len(records) // _MAX_BARS) or 1
    shown = sorted(records, key=lambda record: record.start)[::step]
    axes.set(title="requests: waiting, then answering", xlabel="seconds since the start", ylabel="request")
    axes.invert_yaxis()
    for row, record in enumerate(shown):
        times = [record.start, record.arrivals[0][0] if record.arrivals else record.end, record.end]
        colors = (_ORANGE, _BLUE) if record.error is None else (_RED, _RED)
        for (left, right), color in zip(pairwise(times), colors, strict=True):
            axes.barh(row * step, right - left, left=left - start_s, height=step, color=color, linewidth=0)
