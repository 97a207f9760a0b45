"""service.cli.model_progress: a bar for people, lines for logs."""

import io

from rich.console import Console

from service.cli.model_progress import model_progress
from service.models import Progress


def _shown(reports: list[Progress], is_terminal: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=is_terminal, width=100)
    with model_progress(console) as report:
        for progress in reports:
            report(progress)
    return file.getvalue()


_DOWNLOAD = [Progress("downloading x", done * 10**5, 10**8) for done in range(1001)]


def test_lines_are_few() -> None:
    """One at the start, one for each quarter; and one for what has no size."""
    lines = _shown([*_DOWNLOAD, Progress("writing files")], is_terminal=False).splitlines()
    assert lines == [*(f"downloading x: {part} of 100 MB" for part in (0, 25, 50, 75, 100)), "writing files"]


def test_bar_shows_what_is_being_done() -> None:
    """A bar for what has a size, a line for what has none."""
    shown = _shown([*_DOWNLOAD, Progress("writing files")], is_terminal=True)
    assert "downloading x" in shown
    assert "writing files" in shown


def test_nothing_to_report_shows_nothing() -> None:
    """A model that is there."""
    assert _shown([], is_terminal=False) == ""
