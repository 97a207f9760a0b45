"""The client as a package of its own: what it needs, and what it tells type checkers."""

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import sluicegate_client
from tests.clients.fake_server import FakeServer

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "clients" / "python" / "README.md"


def _project(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text())["project"]


def test_the_client_alone_needs_what_the_whole_needs() -> None:
    """Its own package file has the same version, and the same range for each dependency."""
    client, whole = _project("clients/python/pyproject.toml"), _project("pyproject.toml")
    assert client["version"] == whole["version"]
    assert set(client["dependencies"]) < set(whole["dependencies"])


def test_the_readme_runs(server: FakeServer) -> None:
    """Its program, as it stands there: with an answer, and with a server that is too busy."""
    (program,) = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    program = program.replace("127.0.0.1:50051", server.address)
    assert _output(program) == "Hello "
    assert _output(program.replace('"Hello"', '"overload"').replace("timeout=60", "timeout=1")) == (
        "QUEUE_FULL, to be tried in 1.5 s\n"
    )


def _output(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def test_its_program_has_the_commands_that_call_a_server(server: FakeServer) -> None:
    """By the name that its package file gives, with the same words as those of `sluicegate`."""
    module, _, function = _project("clients/python/pyproject.toml")["scripts"]["sluicegate-client"].partition(":")
    main = getattr(importlib.import_module(module), function)
    assert {"generate", "chat", "health"} < main.commands.keys()
    done = CliRunner().invoke(main, ["generate", "Hello", "--address", server.address])
    assert done.stdout == "Hello \n", done.output


def test_a_program_with_types(tmp_path: Path) -> None:
    """`mypy --strict` takes what the client is made for, and finds misspelled options: it is installed with types."""
    environment = _environment_with_the_client(tmp_path)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--python-executable={environment}"]
    # A package is not looked for where mypy runs: it would be found in the tree, which is not how users have it.
    done = subprocess.run(
        [*command, f"--cache-dir={tmp_path / 'cache'}", str(Path(__file__).with_name("typed_program.py"))],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "MYPYPATH"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "Success: no issues found in 1 source file\n", done.stdout + done.stderr


def _environment_with_the_client(folder: Path) -> Path:
    """The Python of one that has the client and all that this one has."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text("".join(f"{path}\n" for path in sys.path if "site-packages" in path))
    (packages / "sluicegate_client").symlink_to(ROOT / "clients" / "python" / "sluicegate_client")
    (packages / "sluicegate").symlink_to(ROOT / "proto" / "gen" / "sluicegate")
    return folder / "venv" / "bin" / "python"


def test_every_error_can_be_imported_from_the_package() -> None:
    """So can whatever the clients' methods take and return."""
    public = {*sluicegate_client.__all__}
    for module in pkgutil.iter_modules(sluicegate_client.__path__):
        if module.name in ("errors", "responses", "client", "async_client", "retry", "multiplexed"):
            defined = vars(importlib.import_module(f"sluicegate_client.{module.name}"))
            names = {name for name, value in defined.items() if inspect.isclass(value) and not name.startswith("_")}
            own = {name for name in names if defined[name].__module__ == f"sluicegate_client.{module.name}"}
            assert own - {"Attempts"} <= public, module.name
