"""A front end for tests: the sockets of a gateway, driven by hand; and core processes to put behind it."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import zmq

from core.wire.codec import Encoder
from core.wire.handshake import engine_identity
from core.wire.messages import (
    ENGINE_CORE_DEAD,
    EngineAddresses,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineHello,
    EngineInit,
    EngineReadyResponse,
    RequestType,
    UtilityCall,
    UtilityOutput,
)
from core.wire.sampling_params import SamplingParams
from core.wire.tensor_ipc import TensorSender
from core.wire.version import WireVersion, decoder_of_outputs

ENDLESS = 8000
"""More tokens than a paced core gives while a test runs."""
PATIENCE_S = 60
"""How long a test waits for what must come: far longer than it takes on a loaded machine."""
ROOT = Path(__file__).parents[2]


def make_request(request_id: str, client_index: int = 0, **params: Any) -> EngineCoreRequest:
    sampling_params = SamplingParams(**{"max_tokens": 3, **params})
    return EngineCoreRequest(
        request_id, [1, 2, 3, 4, 5], None, sampling_params, None, 0.0, None, None, None, client_index=client_index
    )


class FrontEnd:
    """The handshake, and one pair of sockets per client. ``scheme``: ipc, below ``folder``, or tcp."""

    def __init__(
        self,
        folder: Path,
        num_clients: int = 1,
        scheme: str = "ipc",
        rank: int = 0,
        version: WireVersion = WireVersion.V0_25,
        tensors: TensorSender | None = None,
    ) -> None:
        self._context = zmq.Context()
        self._folder = folder if scheme == "ipc" else None
        self._encoder = Encoder(tensors)
        self._decode_outputs = decoder_of_outputs(version)
        self._received: dict[str, list[EngineCoreOutput]] = defaultdict(list)
        self._answers: dict[int, UtilityOutput] = {}
        self.identity = engine_identity(rank)
        self.handshake = self._bind(zmq.ROUTER, "handshake")
        self.inputs = [self._bind(zmq.ROUTER, f"input{i}") for i in range(num_clients)]
        self.outputs = [self._bind(zmq.PULL, f"output{i}") for i in range(num_clients)]

    def _bind(self, kind: int, name: str) -> zmq.Socket[bytes]:
        return self._listen(kind, f"ipc://{self._folder}/{name}" if self._folder else "tcp://127.0.0.1:0")

    def _listen(self, kind: int, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.set_hwm(0)  # As every front end has it: what a full queue holds back is lost when the core closes.
        socket.rcvtimeo = PATIENCE_S * 1000
        socket.bind(address)
        return socket

    @property
    def address(self) -> str:
        return address_of(self.handshake)

    def receive_hello(self) -> EngineHello:
        """HELLO or READY, the identity checked."""
        identity, payload = self.handshake.recv_multipart()
        assert identity == self.identity
        return msgspec.msgpack.decode(payload, type=EngineHello)

    def send_init(self) -> None:
        addresses = EngineAddresses([address_of(s) for s in self.inputs], [address_of(s) for s in self.outputs])
        self.handshake.send_multipart([self.identity, msgspec.msgpack.encode(EngineInit(addresses))])

    def receive_ready_response(self, client_index: int = 0) -> EngineReadyResponse:
        identity, payload = self.inputs[client_index].recv_multipart()
        assert identity == self.identity
        return msgspec.msgpack.decode(payload, type=EngineReadyResponse)

    def accept(self) -> None:
        """The whole handshake."""
        assert self.receive_hello().status == "HELLO"
        self.send_init()
        for client_index in range(len(self.inputs)):
            self.receive_ready_response(client_index)
        assert self.receive_hello().status == "READY"

    def send(self, *frames: bytes, client_index: int = 0) -> None:
        self.inputs[client_index].send_multipart([self.identity, *frames])

    def add(self, request_id: str, client_index: int = 0, **params: Any) -> None:
        self.send_request(make_request(request_id, client_index, **params))

    def send_request(self, request: EngineCoreRequest) -> None:
        document, *arrays = self._encoder.encode(request)
        self.send(RequestType.ADD.value, bytes(document), *arrays, client_index=request.client_index)

    def abort(self, *request_ids: str) -> None:
        self.send(RequestType.ABORT.value, msgspec.msgpack.encode(list(request_ids)))

    def call(self, call_id: int, method: str, *args: Any, client_index: int = 0) -> None:
        call = UtilityCall(client_index, call_id, method, list(args))
        self.send(RequestType.UTILITY.value, msgspec.msgpack.encode(call), client_index=client_index)

    def receive(self, client_index: int = 0) -> EngineCoreOutputs:
        """The next message, which is also kept by what it is about."""
        frames = self.outputs[client_index].recv_multipart()
        assert frames != [ENGINE_CORE_DEAD]
        message = self._decode_outputs(frames)
        for output in message.outputs:
            self._received[output.request_id].append(output)
        if message.utility_output is not None:
            self._answers[message.utility_output.call_id] = message.utility_output
        return message

    def receive_dead(self, client_index: int = 0) -> list[EngineCoreOutputs]:
        """Everything up to ENGINE_CORE_DEAD."""
        before = []
        while (frames := self.outputs[client_index].recv_multipart()) != [ENGINE_CORE_DEAD]:
            before.append(self._decode_outputs(frames))
        return before

    def receive_first(self, request_id: str, client_index: int = 0) -> EngineCoreOutput:
        """The first output of ``request_id``: it runs."""
        while not self._received[request_id]:
            self.receive(client_index)
        return self._received[request_id][0]

    def receive_until_finished(self, *request_ids: str, client_index: int = 0) -> dict[str, list[EngineCoreOutput]]:
        """All outputs of ``request_ids``, once each of them is finished."""
        while not all(any(output.finished for output in self._received[request_id]) for request_id in request_ids):
            self.receive(client_index)
        return {request_id: self._received[request_id] for request_id in request_ids}

    def receive_answer(self, call_id: int, client_index: int = 0) -> UtilityOutput:
        while call_id not in self._answers:
            self.receive(client_index)
        return self._answers[call_id]

    def leave(self, client_index: int) -> tuple[str, str]:
        """Close the sockets of one client; where they were."""
        left = self.inputs[client_index], self.outputs[client_index]
        addresses = address_of(left[0]), address_of(left[1])
        for socket in left:
            socket.close(linger=0)
        return addresses

    def come_back(self, client_index: int, address_in: str, address_out: str) -> None:
        """Open them again."""
        self.inputs[client_index] = self._listen(zmq.ROUTER, address_in)
        self.outputs[client_index] = self._listen(zmq.PULL, address_out)

    def close(self) -> None:
        self._context.destroy(linger=0)

    def __enter__(self) -> "FrontEnd":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def address_of(socket: zmq.Socket[bytes]) -> str:
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


class CoreProcess:
    """``python -m MODULE --handshake-address ADDRESS ARGS``, ended by its context if it does not end by itself."""

    def __init__(
        self,
        address: str,
        *args: str,
        module: str = "bench.null_core",
        pass_fds: tuple[int, ...] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        command = [sys.executable, "-m", module, "--handshake-address", address, *args]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, pass_fds=pass_fds, stderr=subprocess.PIPE, text=True
        )
        self._log: list[str] = []
        self._logged = threading.Condition()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._logged:
                self._log.append(line)
                self._logged.notify_all()

    @property
    def log(self) -> str:
        return "".join(self._log)

    def wait_for_log(self, pattern: str) -> None:
        with self._logged:
            assert self._logged.wait_for(lambda: re.search(pattern, self.log), PATIENCE_S), self.log

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """The exit code; everything it logged is in ``log`` by then."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def __enter__(self) -> "CoreProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
