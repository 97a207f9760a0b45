"""The reference of sluicegate.v1, and the statuses that the API promises."""

import re
import subprocess
import sys
from pathlib import Path

from service.gate import Closed

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs/api-reference.md"
STATUSES = (ROOT / "docs/api.md").read_text().partition("## Statuses")[2].partition("## Metadata")[0]

BY_TASK = "MODEL_CANNOT_EMBED"
"""The one reason that the code makes out of parts."""


def test_the_reference_is_the_one_that_the_proto_generates(tmp_path: Path) -> None:
    """A proto changed without `make proto` does not pass."""
    made = tmp_path / "reference.md"
    subprocess.run([sys.executable, ROOT / "proto/api_reference.py", made], check=True, timeout=60)
    assert made.read_text() == REFERENCE.read_text()


def test_everything_of_the_proto_is_in_the_reference() -> None:
    """Each service, call, message, enum and value has a heading or a row; each name once, so that links are right."""
    protos = "".join(proto.read_text() for proto in (ROOT / "proto/sluicegate/v1").glob("*.proto"))
    headings = re.findall(r"^#+ (\w+)$", REFERENCE.read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(re.findall(r"^ *(?:service|rpc|message|enum) (\w+)", protos, re.MULTILINE))
    assert len({heading.lower() for heading in headings}) == len(headings)
    rows = re.findall(r"^\| \d+ \| `(\w+)`", REFERENCE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(re.findall(r"(\w+) = \d+;", protos))


def test_every_reason_that_the_gateway_gives_is_told() -> None:
    """In the table of statuses, which has no others."""
    modules = {path: path.read_text() for path in (ROOT / "service").rglob("*.py")}
    calls = "".join(text for path, text in modules.items() if path.name not in ("errors.py", "statuses.py"))
    given = set(re.findall(r"\breason=\"([A-Z_]+)\"", calls)) | {why.name for why in Closed}
    told = set(re.findall(r"`([A-Z_]+)`", STATUSES))
    assert given - told == set()
    assert [reason for reason in told if not re.search(rf"\b{reason}\b", "".join(modules.values()))] == [BY_TASK]
