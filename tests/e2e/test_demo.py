import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from bench.demo import PROMPT, QUESTION
from tests.e2e.server import EXIT_TIMEOUT_S

DEMO = [sys.executable, "-m", "bench.demo"]


def test_the_demo_shows_two_answers_with_their_figures_and_exits_0() -> None:
    """What `make demo` runs."""
    done = subprocess.run(DEMO, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ready grpc=127.0.0.1:" in done.stdout
    assert f"> {QUESTION}\n" in done.stdout
    assert f"\n{PROMPT}" in done.stdout
    figures = re.findall(r"\d+ prompt tokens, \d+ output tokens, TTFT [\d.]+ s, [\d.]+ tokens/s\n", done.stdout)
    assert len(figures) == 2


def test_ctrl_c_ends_the_demo_and_its_server(short_folder: Path) -> None:
    """Nothing goes on in the background, and no socket is left."""
    environment = {**os.environ, "TMPDIR": str(short_folder)}
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "ready grpc=" in line:
                break
        processes = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(EXIT_TIMEOUT_S) == 130
    assert len(processes) >= 2
    _, alive = psutil.wait_procs(processes, EXIT_TIMEOUT_S)
    assert alive == []
    assert [*short_folder.iterdir()] == []
