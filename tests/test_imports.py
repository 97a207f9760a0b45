"""The import arrows that import-linter cannot see: at run time, and by file."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ZMQ_FILES = {
    "core/data_parallel/__main__.py",
    "core/data_parallel/coordinator.py",
    "bench/tensor_ipc.py",
    "core/input_thread.py",
    "core/kv_event_publisher.py",
    "core/io_threads.py",
    "core/output_thread.py",
    "core/wire/curve.py",
    "core/wire/handshake.py",
    "service/cores/engine_sockets.py",
    "service/kv_events/event_sockets.py",
    "service/cores/wave_client.py",
}


def _python_files() -> Iterator[str]:
    for folder in ("core", "service", "bench", "clients/python/sluicegate_client"):
        yield from (path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.py"))


def _imports(path: str) -> set[str]:
    """Every module that the file names in an import, wherever in the file it stands."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def _importers_of(package: str) -> set[str]:
    return {path for path in _python_files() if any(name.split(".")[0] == package for name in _imports(path))}


def _loaded_by(statement: str) -> set[str]:
    command = [sys.executable, "-c", f"import sys; {statement}; print(*sys.modules)"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import service.server", {"torch", "opentelemetry"}),
        ("import core.process", {"grpc", "google"}),
        ("import core.wire.codec, core.wire.messages, core.wire.handshake", {"grpc", "google", "torch"}),
        ("import sluicegate_client", {"torch", "zmq", "core", "service"}),
        ("import service.cli", {"grpc", "torch", "zmq"}),
        ("import core.executor.in_process, core.embedding.load", {"transformers", "sympy"}),
    ],
)
def test_a_fresh_interpreter_loads_only_what_is_meant(statement: str, absent: set[str]) -> None:
    """The gateway runs without torch, the core without gRPC and torch's compiler, the command starts without any."""
    assert not _loaded_by(statement) & absent


def test_torch_is_imported_under_the_executor_and_the_model_only() -> None:
    """Everything else of the core decides; they compute. Benches of what they compute may too."""
    places = ("core/executor/", "core/model/", "bench/")
    assert {path for path in _importers_of("torch") if not path.startswith(places)} == set()


def test_transformers_is_imported_for_its_own_models_only() -> None:
    """By the package of its decoders, and by embedding models: when such a model is loaded, and not before.

    Drivers of other engines run in those engines' environments.
    """
    places = ("core/model/hf/", "core/model/embedding/", "bench/peers/drivers/", "bench/quality/drivers/")
    assert {path for path in _importers_of("transformers") if not path.startswith(places)} == set()


def test_zmq_is_imported_where_there_is_a_socket_only() -> None:
    """By the two ends of the wire, and by those of KV events; nobody who decides touches a socket."""
    assert _importers_of("zmq") == ZMQ_FILES


def test_the_wire_stands_on_its_own() -> None:
    """core.wire imports nothing else of core, so that the gateway may import it."""
    for path in _python_files():
        if path.startswith("core/wire/"):
            assert {
                name for name in _imports(path) if name.startswith("core") and not name.startswith("core.wire")
            } == set()
