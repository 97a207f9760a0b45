"""`sluicegate health`, as a container's probe runs it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from tests.clients.fake_server import FakeServer, fake_server
from tests.service.security.certificate_files import write_pair

SLUICEGATE = str(Path(sys.executable).with_name("sluicegate"))
SOON_S = 20.0


def _health(*arguments: str, **variables: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [SLUICEGATE, "health", *arguments], env=os.environ | variables, capture_output=True, text=True, timeout=SOON_S
    )
    return done.returncode, done.stdout, done.stderr


def test_a_server_that_serves(server: FakeServer) -> None:
    """0, and the status on standard output."""
    assert _health("--address", server.address) == (0, "readiness: SERVING\n", "")


def test_a_server_on_a_unix_socket(short_folder: Path) -> None:
    """The environment may name the address, as for every command that calls."""
    with fake_server(f"unix:{short_folder}/socket") as server:
        assert _health(SLUICEGATE_ADDRESS=server.address)[0] == 0


def test_a_server_that_does_not(server: FakeServer) -> None:
    """1, and one line that says what it answered."""
    server.set_serving(False)
    assert _health("--address", server.address) == (1, "", "Error: readiness: NOT_SERVING\n")
    assert _health("--address", server.address, "--service", "nothing") == (1, "", "Error: nothing: NOT_FOUND\n")


def test_no_server() -> None:
    """1, and one line that says why it could not be asked."""
    code, output, error = _health("--address", "127.0.0.1:1")
    assert (code, output) == (1, "")
    assert error.startswith("Error: readiness: no connection to 127.0.0.1:1: connection refused")
    assert error.count("\n") == 1


def test_a_server_that_is_silent() -> None:
    """It is not waited for longer than --timeout says."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code, _, error = _health("--address", f"127.0.0.1:{listener.getsockname()[1]}", "--timeout", "0.3")
    assert (code, error) == (1, "Error: readiness: the timeout of the call has passed\n")


@pytest.mark.parametrize("timeout", ["inf", "1e300"])
def test_a_timeout_without_an_end(server: FakeServer, timeout: str) -> None:
    """Is one: gRPC would take it for one that has passed."""
    assert _health("--address", server.address, "--timeout", timeout)[0] == 0


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--timeout", "0", "0.0 is not in the range x>0"),
        ("--timeout", "nan", "must be a number of seconds, got nan"),
        ("--service", "\udcff", "surrogates not allowed"),
    ],
)
def test_what_cannot_be_asked(option: str, value: str, said: str) -> None:
    """2, as for every wrong usage."""
    code, _, error = _health(option, value)
    assert code == 2
    assert said in error


def test_the_environment_of_a_server(server: FakeServer, tmp_path: Path) -> None:
    """Beside a server with TLS and a configuration file, a probe takes neither for its own."""
    tls = write_pair(trustme.CA(), tmp_path)
    config = tmp_path / "server.yaml"
    config.write_text("max-num-seqs: 4\nno-such-key: 1\n")
    variables = {
        "SLUICEGATE_TLS_CERT": str(tls.cert),
        "SLUICEGATE_TLS_KEY": str(tls.key),
        "SLUICEGATE_CONFIG": str(config),
        "SLUICEGATE_TIMEOUT": "soon",
    }
    assert _health("--address", server.address, **variables)[0] == 0


def test_what_a_probe_imports() -> None:
    """Nothing that draws, serves or computes: it runs every few seconds."""
    code = "import sys, sluicegate_client.health_cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"rich", "numpy", "yaml", "tokenizers", "jinja2", "zmq"} & {*done.stdout.split()}
