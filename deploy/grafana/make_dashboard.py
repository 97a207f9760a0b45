"""Prints dashboard.json, which Grafana imports: ``cd deploy/grafana && python make_dashboard.py > dashboard.json``.

Rows of panels, each a few queries; panels.py has them. A test keeps the file up to date.
"""

import json
from collections.abc import Iterator
from typing import Any

from panels import ROWS, Panel, Row

_PER_LINE, _GRID_WIDTH, _HEIGHT = 3, 24, 8
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """As Grafana imports it."""
    return {
        "uid": "sluicegate",
        "title": "Sluicegate",
        "description": "Gateways and their engine cores.",
        "tags": ["sluicegate", "vllm", "inference"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [*_variables()]},
        "panels": [*_panels()],
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    for name, label, query in (
        ("instance", "Gateway", "label_values(sluicegate:serving, instance)"),
        ("model", "Model", 'label_values(vllm:num_requests_running{instance=~"$instance"}, model_name)'),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _DATASOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _panels() -> Iterator[dict[str, Any]]:
    y = number = 0
    for row in ROWS:
        number += 1
        yield {"id": number, "type": "row", "title": row.title, "gridPos": _place(y, 0, _GRID_WIDTH, 1), "panels": []}
        y += 1
        for index, panel in enumerate(row.panels):
            number += 1
            column, width = index % _PER_LINE, _GRID_WIDTH // _PER_LINE
            line = index // _PER_LINE
            yield {"id": number, "gridPos": _place(y + line * _HEIGHT, column * width, width, _HEIGHT), **_panel(panel)}
        y += _HEIGHT * _lines(row)


def _lines(row: Row) -> int:
    return -(-len(row.panels) // _PER_LINE)


def _place(y: int, x: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 10, "showPoints": "never"}},
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": _DATASOURCE, "expr": expression, "legendFormat": legend}
            for i, (legend, expression) in enumerate(panel.expressions)
        ],
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=1, ensure_ascii=False))
