"""The genuine Rust front end before our core, in the three ways in which it takes one.

serve --python sluicegate-core         the core is its child, found and ended by it
serve --data-parallel-size-local 0     it listens for a core that someone else starts
frontend --listen-fd …                 no handshake at all: both sockets are given
"""

import asyncio
import json
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import psutil
import zmq.asyncio

from core.wire.handshake import HandshakeServer
from core.wire.messages import EngineAddresses
from tests.interop.openai_api import OpenAIApi
from tests.interop.program import PATIENCE_S, Program, free_port
from tests.model_files import SMOLLM2_FOLDER

SLUICEGATE_CORE = Path(sys.executable).with_name("sluicegate-core")
IN_FLOAT32 = ("--quantization", "none")
"""As the reference was computed."""
MODEL = "smollm2"
messages, services = grpc.protos_and_services("bench/gateways/vllm_generate.proto")


@dataclass(frozen=True)
class FrontEnd:
    """One that serves. ``grpc_port``: 0 without the gRPC service."""

    program: Program
    api: OpenAIApi
    grpc_port: int = 0

    @property
    def core(self) -> psutil.Process:
        """The only child."""
        (core,) = self.program.descendants()
        return core

    @contextmanager
    def generate(self, version: str) -> Iterator[Any]:
        """A stub of its gRPC service."""
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            yield (services.GenerateStub if version == "0.25.1" else services.InferenceStub)(channel)


@contextmanager
def serving_child(
    vllm_rs: Path, *core_options: str, options: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
) -> Iterator[FrontEnd]:
    """With a core that it starts itself."""
    port, grpc_port = free_port(), free_port()
    command = [vllm_rs, "serve", SMOLLM2_FOLDER, "--python", SLUICEGATE_CORE, *_listening(port)]
    with Program(
        [*command, "--grpc-port", str(grpc_port), *options, "--", *IN_FLOAT32, *core_options], environment
    ) as program:
        yield FrontEnd(program, _ready_api(program, port), grpc_port)


@contextmanager
def listening_for_core(vllm_rs: Path) -> Iterator[tuple[Program, OpenAIApi, list[str]]]:
    """Without a core; last, the options with which one dials it."""
    port = free_port()
    dial = ["--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(free_port())]
    command = [vllm_rs, "serve", SMOLLM2_FOLDER, *_listening(port)]
    with Program([*command, "--data-parallel-size", "1", "--data-parallel-size-local", "0", *dial]) as program:
        yield program, OpenAIApi(port, MODEL), dial


@contextmanager
def core(*options: str) -> Iterator[Program]:
    """Our core, as its own program."""
    with Program([SLUICEGATE_CORE, SMOLLM2_FOLDER, *IN_FLOAT32, *options]) as program:
        yield program


@contextmanager
def bootstrapped(vllm_rs: Path, version: str, folder: Path) -> Iterator[tuple[Program, OpenAIApi]]:
    """One with the sockets ``input`` and ``output`` in ``folder``, which knows nothing of a handshake."""
    arguments = json.dumps({"model_tag": str(SMOLLM2_FOLDER), "served_model_name": [MODEL]})
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        options, fds = _by_address(folder) if version == "0.25.1" else _by_descriptor(folder, stack)
        command = [vllm_rs, "frontend", "--listen-fd", str(listener.fileno()), *options]
        command += ["--engine-count", "1", "--args-json", arguments]
        program = Program(command, pass_fds=[listener.fileno(), *fds])
        yield stack.enter_context(program), OpenAIApi(listener.getsockname()[1], MODEL)


def _by_address(folder: Path) -> tuple[list[str], list[int]]:
    return ["--input-address", f"ipc://{folder}/input", "--output-address", f"ipc://{folder}/output"], []


def _by_descriptor(folder: Path, stack: ExitStack) -> tuple[list[str], list[int]]:
    """As later releases take them: listening already."""
    listeners = {name: stack.enter_context(socket.socket(socket.AF_UNIX)) for name in ("input", "output")}
    options = []
    for name, listener in listeners.items():
        listener.bind(f"{folder}/{name}")
        listener.listen()
        options += [f"--{name}-listener-fd", str(listener.fileno())]
    return options, [listener.fileno() for listener in listeners.values()]


def introduce(folder: Path) -> None:
    """Be the handshake for the front end of ``bootstrapped``; return when a core at ``folder``/handshake is READY."""
    asyncio.run(_introduce(folder))


async def _introduce(folder: Path) -> None:
    addresses = EngineAddresses([f"ipc://{folder}/input"], [f"ipc://{folder}/output"])
    with (
        zmq.asyncio.Context() as context,
        closing(HandshakeServer(context, f"ipc://{folder}/handshake", addresses)) as server,
    ):
        await server.run(PATIENCE_S)


def _listening(port: int) -> list[str]:
    return ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", MODEL]


def _ready_api(program: Program, port: int) -> OpenAIApi:
    program.wait_until_served(f"http://127.0.0.1:{port}/health")
    return OpenAIApi(port, MODEL)
