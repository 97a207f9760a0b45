"""A core that does what the test says: real sockets and real frames, no engine."""

import asyncio
from types import TracebackType
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from core.wire.codec import Decoder, Encoder
from core.wire.handshake import CoreHandshake, HandshakeConfig, engine_identity
from core.wire.messages import (
    ENGINE_CORE_DEAD,
    EngineAddresses,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineReadyResponse,
    FinishReason,
    RequestType,
    UtilityCall,
    UtilityOutput,
)
from core.wire.stats import SchedulerStats

READY = EngineReadyResponse(
    max_model_len=1024, num_gpu_blocks=101, block_size=16, dtype="float32", vllm_version="0.25.1"
)


class FakeCore:
    """Use as ``async with``. Leaving the block closes the connection without a word, as a killed process would."""

    def __init__(self, ready: EngineReadyResponse = READY, rank: int = 0) -> None:
        self.ready = ready
        self._rank = rank
        self._context = zmq.Context()
        self._input = self._context.socket(zmq.DEALER)
        self._input.identity = engine_identity(rank)
        self._inbox = zmq.asyncio.Socket.from_socket(self._input)
        self._output = self._context.socket(zmq.PUSH)
        self._output.set_hwm(0)
        self._encoder = Encoder()
        self._decoders: dict[RequestType, Decoder[Any]] = {
            RequestType.ADD: Decoder(EngineCoreRequest),
            RequestType.ABORT: Decoder(list[str]),
            RequestType.UTILITY: Decoder(UtilityCall),
        }

    async def shake_hands(self, address: str, *, local: bool = False) -> None:
        """HELLO, INIT, connect, READY."""
        with CoreHandshake(HandshakeConfig(address, self._rank, local=local, init_timeout_s=30)) as handshake:
            init = await asyncio.to_thread(handshake.greet)
            self.connect(init.addresses)
            handshake.say_ready(init.parallel_config)

    def connect(self, addresses: EngineAddresses, ready_payload: bytes | None = None) -> None:
        """Connect and send the ready response, or what stands in for it."""
        self._input.connect(addresses.inputs[0])
        self._output.connect(addresses.outputs[0])
        self.send_input(ready_payload or msgspec.msgpack.encode(self.ready))

    async def receive_frames(self) -> tuple[RequestType, list[bytes]]:
        """The next message from the gateway, as it came."""
        async with asyncio.timeout(10):
            kind, *frames = await self._inbox.recv_multipart()
        return RequestType(kind), frames

    async def receive(self) -> tuple[RequestType, Any]:
        """The next message from the gateway."""
        request_type, frames = await self.receive_frames()
        return request_type, self._decoders[request_type].decode(frames)

    async def receive_add(self) -> EngineCoreRequest:
        request: EngineCoreRequest = await self._receive_only(RequestType.ADD)
        return request

    async def receive_abort(self) -> list[str]:
        request_ids: list[str] = await self._receive_only(RequestType.ABORT)
        return request_ids

    async def receive_call(self) -> UtilityCall:
        call: UtilityCall = await self._receive_only(RequestType.UTILITY)
        return call

    def emit(self, *outputs: EngineCoreOutput, stats: SchedulerStats | None = None) -> None:
        """One step's message."""
        self.send(EngineCoreOutputs(outputs=list(outputs), scheduler_stats=stats))

    def emit_token(self, request_id: str, token_id: int, finish_reason: FinishReason | None = None) -> None:
        self.emit(EngineCoreOutput(request_id, [token_id], finish_reason=finish_reason))

    def answer(self, call: UtilityCall, result: Any = None, failure: str | None = None) -> None:
        output = UtilityOutput(call.call_id, failure, None if failure else (None, result))
        self.send(EngineCoreOutputs(utility_output=output))

    def send(self, message: EngineCoreOutputs) -> None:
        message.engine_index = self._rank
        self.send_frames([bytes(frame) for frame in self._encoder.encode(message)])

    def send_frames(self, frames: list[bytes]) -> None:
        """Anything, on the output socket."""
        self._output.send_multipart(frames, zmq.NOBLOCK)

    def send_input(self, frame: bytes) -> None:
        """Anything, on the input socket."""
        self._input.send(frame, zmq.NOBLOCK)

    def report_death(self) -> None:
        self.send_frames([ENGINE_CORE_DEAD])

    def close(self) -> None:
        """Hang up."""
        self._inbox.close(linger=0)
        self._input.close(linger=0)
        self._output.close(linger=5000)
        self._context.term()

    async def _receive_only(self, expected: RequestType) -> Any:
        request_type, message = await self.receive()
        assert request_type is expected, f"expected {expected.name}, got {request_type.name}: {message}"
        return message

    async def __aenter__(self) -> "FakeCore":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
