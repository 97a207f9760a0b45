"""The alert rules."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.prometheus import promtool
from tests.toolchain import require

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/prometheus"


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def headings(document: Path) -> set[str]:
    """As links spell them."""
    titles = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_rules() -> None:
    """Promtool finds nothing wrong with them, and each goes off, and stays silent, when it should."""
    require("promtool")
    promtool("check", "rules", "alerts.yaml", cwd=FOLDER)
    promtool("test", "rules", "alerts_test.yaml", cwd=FOLDER)


def test_every_alert_is_tested() -> None:
    """By name."""
    tested = (FOLDER / "alerts_test.yaml").read_text()
    assert [rule["alert"] for rule in rules() if f'alertname="{rule["alert"]}"' not in tested] == []


def test_every_alert_says_what_to_do() -> None:
    """A summary, a description, and a section of the runbook that is its own."""
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}
        path, _, heading = rule["annotations"]["runbook"].partition("#")
        assert (path, heading) == ("docs/runbook.md", rule["alert"].lower())
        assert heading in headings(ROOT / path), rule["alert"]


def test_every_section_has_its_alert() -> None:
    """None is left of an alert that was renamed."""
    titles = re.findall(r"^### (Sluicegate\w+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)
    assert titles == [rule["alert"] for rule in rules()]
