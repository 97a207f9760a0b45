"""The public contract and what is generated from it."""

import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROTO = Path(__file__).parent.parent / "proto"
BIN = Path(sys.executable).parent


def _run(*command: str | Path) -> None:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=PROTO, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_proto_that_does_not_compile_leaves_the_stubs_as_they_were(tmp_path: Path) -> None:
    """And nothing beside them."""
    shutil.copytree(PROTO, tmp_path / "proto")
    (tmp_path / "proto/sluicegate/v1/broken.proto").write_text("nonsense")
    before = _contents(tmp_path / "proto/gen")
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run([tmp_path / "proto/generate.sh"], env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "broken.proto" in done.stderr
    assert _contents(tmp_path / "proto/gen") == before


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_rpc_message_and_field_is_named_by_the_rules_and_commented() -> None:
    """buf's STANDARD and COMMENTS rules hold, and the files are formatted."""
    _run("buf", "lint")
    _run("buf", "format", "--diff", "--exit-code")


def test_the_stubs_are_those_that_the_proto_generates(tmp_path: Path) -> None:
    """A proto changed without `make proto` does not pass."""
    _run(PROTO / "generate.sh", tmp_path)
    stubs = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    committed = sorted(
        path.relative_to(PROTO / "gen") for path in (PROTO / "gen").rglob("*") if path.suffix in {".py", ".pyi"}
    )
    assert stubs == committed
    _, changed, missing = filecmp.cmpfiles(tmp_path, PROTO / "gen", map(str, stubs), shallow=False)
    assert changed + missing == []
