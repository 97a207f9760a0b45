"""The public contract and what is generated from it."""

import filecmp
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_clients_of_the_last_release_are_still_served() -> None:
    """Nothing that they were built from has gone or changed."""
    _run(PROTO / "breaking.sh")


INFERENCE, SAMPLING = "sluicegate/v1/inference_service.proto", "sluicegate/v1/sampling_params.proto"
BREAKS = {
    "a field that is gone": (SAMPLING, r"  optional double min_p = 5;", "  reserved 5;", '"5" with name "min_p"'),
    "a number that changes": (SAMPLING, r"double top_p = 3;", "double top_p = 33;", '"3" with name "top_p"'),
    "a field with another name": (
        SAMPLING,
        r"int64 seed = 6;",
        "int64 random_seed = 6;",
        '"6" with name "random_seed"',
    ),
    "an rpc with another name": (INFERENCE, r"rpc Detokenize\(", "rpc Untokenize(", 'RPC "Detokenize"'),
    "a type that changes": (SAMPLING, r"int32 top_k = 4;", "string top_k = 4;", '"top_k"'),
}


@pytest.mark.parametrize("breaks", BREAKS)
@pytest.mark.parametrize("has_tag", [False, True])
def test_what_would_break_them_is_refused(breaks: str, has_tag: bool, tmp_path: Path) -> None:
    """With the file and the field or rpc; by the last tag, or without one by the image of the release."""
    file, old, new, words = BREAKS[breaks]
    shutil.copytree(PROTO, tmp_path / "proto", ignore=shutil.ignore_patterns("gen"))
    if has_tag:
        (tmp_path / "proto/released.binpb").unlink()
        _tag_as_released(tmp_path)
    broken, num_breaks = re.subn(old, new, (tmp_path / "proto" / file).read_text())
    assert num_breaks == 1
    (tmp_path / "proto" / file).write_text(broken)
    done = _breaking(tmp_path)
    assert done.returncode != 0
    assert file in done.stdout
    assert words in done.stdout


def test_what_is_added_breaks_nothing(tmp_path: Path) -> None:
    """A field with a number of its own is passed over by clients that do not know it."""
    shutil.copytree(PROTO, tmp_path / "proto", ignore=shutil.ignore_patterns("gen"))
    path = tmp_path / "proto" / SAMPLING
    path.write_text(path.read_text().replace("double min_p = 5;", "double min_p = 5;\n  optional double max_p = 500;"))
    assert _breaking(tmp_path).returncode == 0


def _breaking(tree: Path) -> subprocess.CompletedProcess[str]:
    # No repository is looked for above it.
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    return subprocess.run([tree / "proto/breaking.sh"], env=environment, capture_output=True, text=True)


def _tag_as_released(tree: Path) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    for command in (
        ["init"],
        ["add", "."],
        [*author, "commit", "-m", "release"],
        [*author, "tag", "-a", "v9", "-m", "9"],
    ):
        subprocess.run(["git", *command], cwd=tree, check=True, capture_output=True)


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
