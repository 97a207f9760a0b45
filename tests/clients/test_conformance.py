"""Every client makes the calls of clients/conformance and prints the same lines, against one real server."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import trustme

from tests.e2e.server import Server, serving
from tests.service.security.certificate_files import write_authority, write_pair
from tests.toolchain import require

CLIENTS = Path(__file__).parents[2] / "clients"
KEY = "conformance-0123456789"
BUILD_TIMEOUT_S = 240
RUN_TIMEOUT_S = 60

PROGRAMS = {
    "cpp": ("make", "cmake", "g++", "pkg-config", "protoc", "grpc_cpp_plugin"),
    "go": ("make", "go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc"),
    "java": ("make", "java", "javac", "protoc", "grpc_java_plugin"),
    "node": ("make", "node", "npm"),
    "python": (),
    "ruby": ("make", "ruby", "grpc_tools_ruby_protoc"),
}
LANGUAGES = sorted(PROGRAMS)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """What a conformance program reads, and the server behind it."""
    folder = tmp_path_factory.mktemp("conformance")
    authority = trustme.CA()
    tls = write_pair(authority, folder)
    keys = folder / "keys"
    keys.touch(0o600)
    keys.write_text(f"conformance:{KEY}\n")
    flags = [f"--tls-cert={tls.cert}", f"--tls-key={tls.key}", f"--api-key-file={keys}"]
    flags += ["--plaintext-address=127.0.0.1:0", "--max-queued-requests=4"]
    with serving(*flags, quantization=None) as server:
        tls_address, plaintext_address = _addresses(server)
        yield os.environ | {
            "SLUICEGATE_ADDRESS": plaintext_address,
            "SLUICEGATE_TLS_ADDRESS": tls_address,
            "SLUICEGATE_TLS_CA": str(write_authority(authority, folder)),
            "SLUICEGATE_API_KEY": KEY,
        }


def test_every_client_is_run() -> None:
    """Each folder beside clients/conformance is one."""
    assert sorted(folder.name for folder in CLIENTS.iterdir() if folder.is_dir()) == sorted([*LANGUAGES, "conformance"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_client(language: str, environment: Mapping[str, str], show: Callable[[str], None]) -> None:
    """It builds as its folder says, prints expected.txt to the letter, and ends with 0."""
    require(*PROGRAMS[language])
    expected = (CLIENTS / "conformance" / "expected.txt").read_text()
    run = subprocess.run(
        _command(language), env=environment, capture_output=True, encoding="utf-8", timeout=RUN_TIMEOUT_S
    )
    assert run.stdout == expected, run.stderr
    assert run.returncode == 0, run.stderr
    num_lines = len(expected.splitlines())
    show(f"conformance of {language}: {num_lines} of {num_lines} lines")


# In this file, since one worker runs a file: two would build in one folder.
@pytest.mark.parametrize("language", [language for language in LANGUAGES if language != "python"])
def test_own_tests(language: str) -> None:
    """The tests that a client has in its own language pass."""
    require(*PROGRAMS[language])
    _make(language, "test")


def _command(language: str) -> list[str]:
    folder = CLIENTS / language
    if language == "python":  # nothing to build
        return [sys.executable, str(folder / "conformance.py")]
    _make(language, "all")
    return [str(folder / "build" / "conformance")]


def _make(language: str, target: str) -> None:
    made = subprocess.run(
        ["make", "-C", str(CLIENTS / language), target],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=BUILD_TIMEOUT_S,
    )
    assert made.returncode == 0, made.stdout


def _addresses(server: Server) -> list[str]:
    ready = re.search(r"ready grpc=(\S+)", server.process.log)
    assert ready is not None, server.process.log
    return ready[1].split(",")
