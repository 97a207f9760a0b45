"""The report of a run."""

import json
import re
from pathlib import Path

from click.testing import CliRunner

from bench.cli import bench
from bench.load import RequestRecord
from bench.plots import draw
from tests.clients.fake_server import fake_server

_PNG = b"\x89PNG\r\n\x1a\n"


def run(*arguments: str) -> str:
    with fake_server() as server:
        small = ["--prompt-tokens", "4", "--output-tokens", "3", "--shared-prefix-tokens", "0"]
        done = CliRunner().invoke(bench, [*small, "--address", server.address, *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_page_and_its_pictures(tmp_path: Path) -> None:
    """One HTML file that needs no other; beside it the pictures and the figures, of each pass."""
    output = run("--workload", "W4", "--report", str(tmp_path / "new" / "folder"))
    folder = tmp_path / "new" / "folder"
    assert f"Report: {folder / 'index.html'}" in output
    assert sorted(path.name for path in folder.iterdir()) == ["W4-cold.png", "W4-warm.png", "index.html", "run.json"]
    page = (folder / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert not re.findall(r"(?:src|href)=\"(?!data:)", page)
    assert "W4 cold: 4 prompt + 3 output tokens, concurrency 16" in page
    assert json.loads((folder / "run.json").read_text())["passes"][0]["summary"]["num_output_tokens"] == 48


def test_a_file_that_cannot_be_written_is_named_before_the_run(tmp_path: Path) -> None:
    """Nothing is sent, and there is no traceback."""
    (tmp_path / "file").touch()
    for arguments in (["--report", str(tmp_path / "file" / "x")], ["--json", str(tmp_path / "no" / "run.json")]):
        done = CliRunner().invoke(bench, [*arguments, "--address", "127.0.0.1:9"])
        assert done.exit_code == 1
        assert str(tmp_path) in done.output
        assert "Traceback" not in done.output


def test_pictures_of_whatever_happened() -> None:
    """Requests that failed, had one token or none, or were a thousand."""
    failed = RequestRecord(1.0, 2.0, error="UNAVAILABLE")
    short = RequestRecord(1.0, 3.0, [(2.0, 1)])
    for records in ([], [failed], [short], [failed, short] * 500):
        assert draw("a run", records).startswith(_PNG)
