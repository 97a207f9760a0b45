"""The picture."""

import io

from rich.console import Console

from sluicegate.v1 import control_service_pb2 as pb
from sluicegate_client.top.screen import Screen, sparkline
from sluicegate_client.top.view import Watcher
from tests.clients.fake_control import a_load


def drawn(*loads: pb.Load) -> str:
    """The last of the pictures, one second apart."""
    console, screen, watcher = Console(width=100, file=io.StringIO()), Screen("words at here"), Watcher()
    for second, load in enumerate(loads):
        picture = screen.draw(watcher.see(load, float(second)))
    console.print(picture)
    return console.file.getvalue()


def test_what_is_shown() -> None:
    """Everything that the view has, with its unit."""
    text = drawn(a_load(0), a_load(500))
    for part in ("words at here", "running", "500", "output tokens/s, at most 500", "8 ms / 10 ms", "25%"):
        assert part in text, text


def test_a_core_that_is_silent_is_named() -> None:
    """In words, not by colour alone."""
    assert "1 silent" in drawn(a_load(0, ranks=[pb.RankLoad(rank=1)]), a_load(0, ranks=[pb.RankLoad(rank=1)]))


def test_sparkline() -> None:
    """The highest value is full, zero is the lowest block."""
    assert sparkline([0, 1, 2]) == "▁▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
