import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli import bench
from tests.clients.fake_server import fake_server


def test_a_run_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    """Both hold the figures of every pass."""
    path = tmp_path / "run.json"
    with fake_server() as server:
        arguments = ["--workload", "W4", "--output-tokens", "4", "--address", server.address, "--json", str(path)]
        done = CliRunner().invoke(bench, [*arguments, "--pace", "50", "--gateway-pid", str(os.getpid())])
    assert done.exit_code == 0, done.output
    assert "W4 cold: 1056 (1024 shared) prompt + 4 output tokens, concurrency 16" in done.output
    assert "TTFT, ms" in done.output
    report = json.loads(path.read_text())
    assert [each["name"] for each in report["passes"]] == ["cold", "warm"]
    assert report["passes"][0]["summary"]["num_output_tokens"] == 64
    assert report["workload"]["shared_prefix_tokens"] == 1024


def test_no_proxy_stands_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load goes where the client's calls go: straight to the server, whatever http_proxy says."""
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with fake_server() as server:
        done = CliRunner().invoke(bench, ["--output-tokens", "2", "--num-requests", "1", "--address", server.address])
    assert done.exit_code == 0, done.output


def test_a_run_of_which_nothing_came() -> None:
    """There are no figures, and the last line says how many requests failed."""
    with fake_server() as server:
        arguments = ["--workload", "w1", "--num-requests", "2", "--timeout", "0.000001", "--address", server.address]
        done = CliRunner().invoke(bench, arguments)
    assert done.exit_code == 1
    assert re.search(r"TTFT, ms\W+-\W+-\W+-\W", done.output), done.output
    assert done.output.rstrip().endswith("Error: 2 of 2 requests failed")


def test_the_options_change_the_workload_that_is_named() -> None:
    """A rate makes it an open loop; there are at least as many requests as the concurrency."""
    with fake_server() as server:
        small = ["--prompt-tokens", "4", "--output-tokens", "2", "--address", server.address]
        open_loop = CliRunner().invoke(bench, [*small, "--rate", "1000", "--num-requests", "12"])
        closed_loop = CliRunner().invoke(bench, [*small, "--concurrency", "9"])
    assert "1000 requests/s" in open_loop.output
    assert re.search(r"requests +│ +12 ", open_loop.output)
    assert re.search(r"requests +│ +9 ", closed_loop.output)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--workload", "W9"], 2, "'W9' is not one of"),
        (["--num-requests", "0"], 2, "0 is not in the range"),
        (["--prompt-tokens", "8", "--shared-prefix-tokens", "8"], 2, "must be less than prompt_tokens (8), got 8"),
    ],
)
def test_wrong_usage_is_named(arguments: list[str], code: int, message: str) -> None:
    """Exit code 2, before anything is sent."""
    done = CliRunner().invoke(bench, arguments)
    assert done.exit_code == code
    assert message in done.output
