"""What the README, CONTRIBUTING and the documents say is so."""

import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.demo import PROMPT, QUESTION
from tests.e2e.server import Server, serving

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
DOCUMENTS = "".join(document.read_text() for document in sorted((ROOT / "docs").glob("*.md")))


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def _commands(program: str) -> list[list[str]]:
    """The words of every line `$ program …` in a console block, without comments and another program's options."""
    lines = "".join(_blocks(README + CONTRIBUTING + DOCUMENTS, "console")).splitlines()
    commands = [re.split(" # | -- ", line.removeprefix("$ "))[0].split() for line in lines]
    return [words[1:] for words in commands if words[0].endswith(program)]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def test_the_python_block_runs_against_a_server(server: Server) -> None:
    """It prints an answer, its finish reason and usage, and the violation."""
    (code,) = _blocks(README, "python")
    code = code.replace("127.0.0.1:50051", server.address)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" Paris")
    assert "Usage(num_prompt_tokens=" in done.stdout
    assert "Violation(field='sampling_params.top_p'" in done.stdout


def test_what_the_demo_prints_is_what_it_asks() -> None:
    """The block shows the demo as it is."""
    assert f"> {QUESTION}\n" in README
    assert f"\n{PROMPT}" in README


@pytest.mark.parametrize("targets", _commands("make"), ids=" ".join)
def test_every_make_command_has_its_targets(targets: list[str]) -> None:
    """make knows each, without running it."""
    done = subprocess.run(["make", "--dry-run", *targets], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", _commands("sluicegate"), ids=" ".join)
def test_every_sluicegate_command_has_its_options(arguments: list[str]) -> None:
    """The subcommand exists and its help names every option that is used."""
    command = "" if arguments[0].startswith("-") else arguments[0]
    assert {word for word in arguments if word.startswith("--")} <= _options_of(command)


@functools.cache
def _options_of(command: str) -> set[str]:
    arguments = [sys.executable, "-m", "service", *filter(None, [command]), "--help"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"--[a-z-]+", done.stdout))


def test_flags_that_stand_for_vllm_s_are_ours() -> None:
    """The right column of the table for who comes from vLLM names flags of `serve` or of `core`."""
    table = (ROOT / "docs/migrate-from-vllm-grpc.md").read_text().partition("## Flags")[2].partition("## Metrics")[0]
    ours = "".join(row.split(" | ")[-1] for row in table.splitlines() if row.startswith("|"))
    flags = set(re.findall(r"--[a-z-]+[a-z]", ours))
    assert len(flags) > 40
    assert flags - _options_of("serve") - _options_of("core") == set()
