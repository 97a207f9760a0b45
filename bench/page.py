"""A run as one HTML page that needs nothing else: figures, pictures, and what was asked of which machine."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from bench.benchmark import PassResult
from bench.report import distribution_rows, title, totals
from bench.workload import Workload


class PlotsMissingError(Exception):
    """matplotlib, which draws the pictures, is not installed."""


def write_report(folder: Path, workload: Workload, run: dict[str, Any], passes: Sequence[PassResult]) -> Path:
    """Write ``index.html``, ``run.json`` and a PNG of each pass into ``folder``, made if need be; where the page is.

    ``run`` is what ``bench.report.as_json`` gives. Raises PlotsMissingError, and OSError as files do.
    """
    draw = _plotter()
    folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for each in passes:
        heading = title(workload, each.name)
        png = draw(heading, each.records)
        (folder / f"{'-'.join(filter(None, (workload.name, each.name)))}.png").write_bytes(png)
        picture = base64.b64encode(png).decode()
        rows = [*distribution_rows(each)]
        sections.append({"heading": heading, "picture": picture, "rows": rows, "totals": [*totals(each)]})
    text = json.dumps(run, indent=2)
    (folder / "run.json").write_text(text + "\n")
    template = Environment(loader=PackageLoader("bench"), autoescape=True).get_template("report.html")
    page = folder / "index.html"
    page.write_text(template.render(run=run, sections=sections, json=text), encoding="utf-8")
    return page


def check_plots() -> None:
    """Raises PlotsMissingError now, not after the run."""
    _plotter()


def _plotter() -> Any:
    try:
        from bench.plots import draw
    except ImportError as error:
        raise PlotsMissingError(f"--report needs matplotlib: pip install matplotlib ({error})") from error
    return draw
