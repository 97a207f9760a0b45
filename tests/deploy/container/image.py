"""The images, built with buildah: ``python -m tests.deploy.container.image [TARGET …]``.

    debootstrap ─▶ base (kept) ─▶ buildah build ─▶ localhost/sluicegate:test, :gateway, :core
         the machine's pip configuration ──┘

Environment: BASE_IMAGE is taken in place of the base that debootstrap would make; TORCH and TORCH_INDEX_URL say which
torch, as for the Dockerfile.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.deploy.container.podman import PodmanError, environment, podman
from tests.deploy.container.transcript import say

ROOT = Path(__file__).parents[3]
IMAGE = "localhost/sluicegate:test"
GATEWAY = "localhost/sluicegate:gateway"
CORE = "localhost/sluicegate:core"
_TAGS = {"": IMAGE, "gateway": GATEWAY, "core": CORE}
_BASE = "localhost/python-base:bookworm"
_SOURCES = {
    *("index-url", "extra-index-url", "find-links", "trusted-host", "proxy"),
    *("cert", "client-cert", "constraint", "timeout", "default-timeout"),
}
"""Settings of pip that say where packages come from."""
_KEPT_STAGES = ("requirements", "wheel", "gateway-packages", "all-packages", "app", "model")
_TORCH = ("TORCH", "TORCH_INDEX_URL")
_PACKAGES = "python3,python3-venv,python3-pip,python-is-python3,ca-certificates"


def programs() -> list[str]:
    """Those that building and running need."""
    return ["buildah", "podman", "runc", *([] if os.environ.get("BASE_IMAGE") else ["debootstrap"])]


def build(target: str = "") -> str:
    """The name of the image of ``target``, ``gateway`` or ``core``; default: both. Seconds, if nothing changed."""
    say(f"building {_TAGS[target]}")
    _build(target, _TAGS[target])
    return _TAGS[target]


def forget_older() -> None:
    """Of what was ever built only the last is kept, each stage by a name: builds of a day would fill a disk."""
    for stage in _KEPT_STAGES:
        _build(stage, f"localhost/sluicegate-stage:{stage}")
    podman("image", "prune", "--force")


def _build(target: str, tag: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        mounts = [f"--volume={path}:{inside}:ro" for path, inside in _pip_mounts(Path(folder))]
        values = {"BASE_IMAGE": base(), **{name: os.environ[name] for name in _TORCH if name in os.environ}}
        arguments = [f"--build-arg={name}={value}" for name, value in values.items()]
        arguments += [*mounts, *([f"--target={target}"] if target else []), f"--tag={tag}", str(ROOT)]
        _run_showing_steps("buildah", "build", "--format=docker", "--layers", *arguments)


def base() -> str:
    """Debian with Python and nothing else, made once; or the one of the environment."""
    given = os.environ.get("BASE_IMAGE")
    if given:
        return given
    if not podman("images", "--quiet", _BASE):
        say(f"making {_BASE} with debootstrap: minutes, once")
        with tempfile.TemporaryDirectory(dir=environment()["TMPDIR"]) as folder:
            _make_base(Path(folder))
    return _BASE


def _make_base(folder: Path) -> None:
    root = folder / "root"
    _run_showing_steps("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm", str(root))
    for pattern in ("usr/lib/python3*/EXTERNALLY-MANAGED", "var/cache/apt/archives/*.deb", "var/lib/apt/lists/*"):
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for documents in ("doc", "man", "locale"):
        shutil.rmtree(root / "usr/share" / documents)
    subprocess.run(["tar", "-C", root, "-cf", folder / "root.tar", "."], check=True, timeout=600)
    podman("import", str(folder / "root.tar"), _BASE)


def _pip_mounts(folder: Path) -> Iterator[tuple[str, str]]:
    """This machine's configuration of pip, for the build, and whatever files and folders it names."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    settings = dict(re.findall(r"^(?:global|:env:|install)\.([\w-]+)='(.*)'$", listed, re.MULTILINE))
    settings = {name: value for name, value in settings.items() if name in _SOURCES}
    lines = [f"{name} = {value}" for name, value in settings.items()]
    (folder / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))
    yield str(folder / "pip.conf"), "/etc/pip.conf"
    yield from (
        (path, path)
        for path in sorted({_mounted(word) for value in settings.values() for word in value.split()})
        if path
    )


def _mounted(word: str) -> str:
    """What to mount for a word of the configuration; "" if it names nothing on this machine."""
    path = Path(word.removeprefix("file://"))
    if not path.is_absolute() or not path.exists():
        return ""
    # An index on disk links to files beside it.
    return str(path.parent if word.startswith("file:") else path)


def _run_showing_steps(*command: str) -> None:
    """Says what a person should see of it; raises PodmanError with the end of the rest if it fails."""
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        lines = [""]
        for line in process.stdout:
            # What follows a step at once says whether it has to be done at all.
            if re.match(r"\[\d+/\d+\] STEP \d+/\d+: RUN", lines[-1]) and "Using cache" not in line:
                say(f"  {lines[-1].strip()[:110]}")
            lines.append(line)
    if process.returncode != 0:
        raise PodmanError(f"{' '.join(command[:2])} failed:\n{''.join(lines[-60:])}")


if __name__ == "__main__":
    if lacking := [program for program in programs() if shutil.which(program) is None]:
        sys.exit(f"needs {', '.join(lacking)}: docs/container.md has the packages")
    if os.geteuid() != 0:
        sys.exit("needs root: sudo make image")
    names = [build(name) for name in sys.argv[1:] or [""]]
    forget_older()
    # podman and buildah look into the user's own storage unless they are told of this one.
    variables = [f"{name}={value}" for name, value in environment().items() if name.startswith("CONTAINERS_")]
    print(f"To run it: {' '.join(variables)} podman run --rm -p 50051:50051 {names[-1]}")
