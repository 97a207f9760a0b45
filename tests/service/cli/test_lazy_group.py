import subprocess
import sys

import pytest
from click.testing import CliRunner

from service.cli import main


def test_help_lists_every_command_with_one_line() -> None:
    """In the order in which one meets them."""
    lines = CliRunner().invoke(main, ["--help"]).output.partition("Commands:\n")[2].splitlines()
    names = [line.split()[0] for line in lines]
    assert names == ["serve", "gateway", "core", "keys", "pull", "generate", "chat", "health", "lora", "top", "bench"]
    assert all(len(line.split()) > 1 for line in lines)


def test_listing_the_commands_imports_none_of_them() -> None:
    """So that help, and each command, starts at once."""
    code = "import sys; sys.argv = ['sluicegate', '--help']; from service.cli import main; main(standalone_mode=False)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "service.cli.lazy_group" in loaded
    assert not loaded & {"service.cli.serve", "sluicegate_client.cli", "bench.cli", "grpc", "rich"}


@pytest.mark.parametrize("name", ["serve", "gateway", "core", "pull", "generate", "chat", "bench"])
def test_every_command_of_the_table_is_there(name: str) -> None:
    """Each import path leads to a command that explains itself."""
    done = _sluicegate(name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.lower().startswith("usage: ")


def test_an_unknown_command_is_wrong_usage() -> None:
    """Exit code 2, naming it."""
    done = _sluicegate("srve")
    assert done.returncode == 2
    assert "No such command 'srve'" in done.stderr


def test_python_m_service_is_the_same_command() -> None:
    """For trees and images where the script is not on the path."""
    assert _sluicegate("--version").stdout == "sluicegate, version 0.1.0\n"


def _sluicegate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "service", *arguments], capture_output=True, text=True)
