"""``python -m tests.deploy.helm.values_table`` writes the table of values in the chart's README anew, from values.yaml.

A row for each key that has no keys of its own in lines below it; what it is, is said by the comment that begins with
``# --`` above it.
"""

import re
from collections.abc import Iterator

from tests.deploy.helm.chart import CHART

README = CHART / "README.md"
_BEGIN, _END = "<!-- values -->\n", "<!-- /values -->\n"
_KEY = re.compile(r"( *)([A-Za-z]\w*):(?: +(.*))?$")


def table() -> str:
    rows = [f"| `{path}` | {f'`{default}`' if default else ''} | {text} |" for path, default, text in _rows()]
    return "\n".join(["| value | default | |", "|---|---|---|", *rows, ""])


def _rows() -> Iterator[tuple[str, str, str]]:
    """Path, default and description. A line that only opens a mapping is a row if something is said of it."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in lines:
        if line.strip().startswith("#"):
            comment = [*comment, line] if comment and "# -- " not in line else [line]
            continue
        if key := _KEY.match(line):
            indent, default = len(key[1]), key[3] or ""
            path = [*(part for part in path if part[0] < indent), (indent, key[2])]
            text = _text(comment)
            if default or text:
                yield ".".join(name for _, name in path), default, text
        comment = []


def _text(comment: list[str]) -> str:
    if not comment or "# -- " not in comment[0]:
        return ""
    return " ".join(re.sub(r"^ *# (-- )?", "", line) for line in comment).replace("|", "\\|")


def with_table(document: str) -> str:
    """``document`` with the table of today between its two marks."""
    before, _, rest = document.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{table()}\n{_END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
