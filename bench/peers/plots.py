"""A comparison as a picture: each figure's bars, and the machine's limit on them."""

import io

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.peers.metrics import METRICS, Metric
from bench.peers.peer import Family, Peer
from bench.peers.report import Report

_WIDTH_IN, _HEIGHT_IN, _DPI = 14.0, 10.0, 110
_COLUMNS = 3
_OURS = {Family.FLOAT32: "#2563a8", Family.QUANTIZED: "#e08a1e"}
_OTHERS = {Family.FLOAT32: "#a9c3e0", Family.QUANTIZED: "#f3d3a6"}
_LIMIT = "#c0392b"


def draw(report: Report) -> bytes:
    """A PNG."""
    figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), dpi=_DPI, layout="constrained")
    figure.suptitle("blue: float32, orange: quantized; dark: ours; red: the machine's limit")
    rows = -(-len(METRICS) // _COLUMNS)
    places = figure.subplots(rows, _COLUMNS).flat
    for metric, axes in zip(METRICS, places, strict=False):
        _draw(axes, metric, report)
    for axes in [*places][len(METRICS) :]:
        axes.set_axis_off()
    png = io.BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()


def _draw(axes: Axes, metric: Metric, report: Report) -> None:
    better = "more" if metric.more_is_better else "less"
    axes.set(title=f"{metric.title} ({better} is better)")
    peers = [peer for peer in report.peers if metric.title in report.figures[peer.name]]
    for row, peer in enumerate(peers):
        value = report.figures[peer.name][metric.title]
        axes.barh(row, value, color=_color(peer))
        axes.annotate(f" {value:,.4g}", (value, row), va="center", fontsize="small")
        if (limit := report.limits[peer.family].get(metric.title)) is not None:
            axes.vlines(limit, row - 0.4, row + 0.4, color=_LIMIT)
    axes.set_yticks(range(len(peers)), [peer.name for peer in peers])
    axes.invert_yaxis()
    axes.margins(x=0.15)


def _color(peer: Peer) -> str:
    return (_OURS if peer.is_ours else _OTHERS)[peer.family]
