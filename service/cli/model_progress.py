"""How a model's files come along, for people: a bar on a terminal, lines elsewhere; on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console

from service.models import Progress, Report

_LINES_PER_DOWNLOAD = 4


@contextmanager
def model_progress(console: Console | None = None) -> Iterator[Report]:
    """A ``report`` to hand on; nothing is shown while there is nothing to report."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console).report
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
    )
    with bars.Progress(*columns, console=console, transient=True) as display:
        yield _Bar(display).report


class _Bar:
    """A bar for what has a size, which starts over with the next; a line for what has none."""

    def __init__(self, display: bars.Progress) -> None:
        self._display = display
        self._what = ""

    def report(self, progress: Progress) -> None:
        if progress.what != self._what:
            self._what = progress.what
            for task_id in self._display.task_ids:
                self._display.remove_task(task_id)
            if progress.total:
                self._display.add_task(progress.what, total=progress.total)
            else:
                self._display.print(progress.what)
        for task_id in self._display.task_ids:
            self._display.update(task_id, completed=progress.done)


class _Lines:
    """A line for everything new, and one for each quarter of it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: tuple[str, int] | None = None

    def report(self, progress: Progress) -> None:
        quarters = _LINES_PER_DOWNLOAD * progress.done // progress.total if progress.total else 0
        if (progress.what, quarters) != self._last:
            self._last = (progress.what, quarters)
            amount = f": {progress.done / 1e6:.0f} of {progress.total / 1e6:.0f} MB" if progress.total else ""
            self._console.print(progress.what + amount, highlight=False, soft_wrap=True)
