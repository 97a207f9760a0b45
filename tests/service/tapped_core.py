"""A real core with a tap on its wire: every message is passed on, and counted by itself.

    gateway ◀──▶ TappedCore ◀──▶ core process

What a test wants to count exactly must not be a matter of luck: how many tokens were on their way when a client left.
So of a request that is to end early nothing passes any more from the token on that the test says.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import zmq
import zmq.asyncio

from core.wire.codec import Decoder, Encoder
from core.wire.handshake import CoreHandshake, HandshakeConfig, engine_identity
from core.wire.messages import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineHello,
    EventType,
    PrefillStats,
    RequestType,
)
from core.wire.stats import PrefixCacheStats, SchedulerStats
from core.wire.version import WireVersion, decoder_of_outputs
from tests.core.front_end import CoreProcess, FrontEnd

UNKNOWN_TOKEN_ID = 100_000


@dataclass(frozen=True)
class Cut:
    """From when ``is_over(token_ids)`` nothing more of the request passes, which may be from the start.

    ``breaks``: the last token that passes is one that is none.
    """

    is_over: Callable[[Sequence[int]], bool]
    breaks: bool = False


@dataclass
class Passed:
    """What the gateway was sent of one sequence. Times are the core's."""

    request: EngineCoreRequest
    token_ids: list[int] = field(default_factory=list)
    token_times: list[float] = field(default_factory=list)
    """One for each output that had tokens."""
    queued_at: float | None = None
    scheduled_at: float | None = None
    num_preemptions: int = 0
    prefill: PrefillStats | None = None

    @property
    def max_tokens(self) -> int:
        params = self.request.sampling_params
        assert params is not None, "a generation"
        assert params.max_tokens is not None, "set"
        return params.max_tokens


class TappedCore:
    """Use as ``async with``: from then on the gateway at ``handshake_address`` has a core. ``cuts`` by request_id."""

    def __init__(self, handshake_address: str, folder: Path, *arguments: str) -> None:
        self.cuts: dict[str, Cut] = {}
        self.passed: dict[str, Passed] = {}
        self.tokens_per_step: list[int] = []
        self.lookups: defaultdict[str, int] = defaultdict(int)
        self.scheduler = SchedulerStats()
        self.aborted: set[str] = set()
        self._handshake_address = handshake_address
        self._front_end = FrontEnd(folder)
        self._core = CoreProcess(self._front_end.address, *arguments, "--wire-version=0.25", module="core")
        self._context = zmq.asyncio.Context()
        self._inbox, self._outbox = self._context.socket(zmq.DEALER), self._context.socket(zmq.PUSH)
        self._inbox.identity = engine_identity(0)
        self._outbox.set_hwm(0)
        self._core_input = zmq.asyncio.Socket.from_socket(self._front_end.inputs[0])
        self._core_output = zmq.asyncio.Socket.from_socket(self._front_end.outputs[0])
        self._encoder = Encoder()
        self._decode_outputs = decoder_of_outputs(WireVersion.V0_25)
        self._requests: Decoder[EngineCoreRequest] = Decoder(EngineCoreRequest)
        self._aborts: Decoder[list[str]] = Decoder(list[str])
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def log(self) -> str:
        """The core's."""
        return self._core.log

    def calls(self) -> Mapping[str | None, list[Passed]]:
        """The sequences of each request, by the id that its client knows."""
        found: defaultdict[str | None, list[Passed]] = defaultdict(list)
        for passed in self.passed.values():
            found[passed.request.external_req_id].append(passed)
        return found

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._meet)
        self._tasks = [asyncio.ensure_future(self._pass_to_core()), asyncio.ensure_future(self._pass_to_gateway())]
        return self

    def _meet(self) -> None:
        assert self._front_end.receive_hello().status == "HELLO"
        self._front_end.send_init()
        ready = self._front_end.receive_ready_response()
        hello: EngineHello = self._front_end.receive_hello()
        assert hello.status == "READY"
        with CoreHandshake(HandshakeConfig(self._handshake_address, init_timeout_s=60)) as handshake:
            init = handshake.greet()
            inbox, outbox = zmq.Socket.shadow(self._inbox), zmq.Socket.shadow(self._outbox)
            inbox.connect(init.addresses.inputs[0])
            outbox.connect(init.addresses.outputs[0])
            inbox.send(msgspec.msgpack.encode(ready))
            handshake.say_ready(init.parallel_config)

    async def _pass_to_core(self) -> None:
        while True:
            kind, *frames = await self._inbox.recv_multipart()
            if kind == RequestType.ADD.value:
                request = self._requests.decode(frames)
                self.passed[request.request_id] = Passed(request)
            elif kind == RequestType.ABORT.value:
                self.aborted.update(self._aborts.decode(frames))
            await self._core_input.send_multipart([self._front_end.identity, kind, *frames])

    async def _pass_to_gateway(self) -> None:
        while True:
            frames = await self._core_output.recv_multipart()
            message = self._decode_outputs(frames)
            outputs = [output for output in message.outputs if self._passes(output)]
            if self._is_changed(message, outputs):
                message.outputs = outputs
                frames = [bytes(frame) for frame in self._encoder.encode(message)]
            self._count(message, outputs)
            await self._outbox.send_multipart(frames)

    def _passes(self, output: EngineCoreOutput) -> bool:
        passed = self.passed[output.request_id]
        cut = self.cuts.get(passed.request.external_req_id or "")
        return not (cut is not None and cut.is_over(passed.token_ids))

    def _is_changed(self, message: EngineCoreOutputs, outputs: list[EngineCoreOutput]) -> bool:
        """Cuts what is over now: its end, if it has come, is not known to anyone."""
        is_changed = len(outputs) < len(message.outputs)
        for output in outputs:
            passed = self.passed[output.request_id]
            cut = self.cuts.get(passed.request.external_req_id or "")
            if cut is None or not cut.is_over([*passed.token_ids, *output.new_token_ids]):
                continue
            is_changed = True
            output.finish_reason = output.stop_reason = None
            if cut.breaks:
                output.new_token_ids[-1] = UNKNOWN_TOKEN_ID
        return is_changed

    def _count(self, message: EngineCoreOutputs, outputs: list[EngineCoreOutput]) -> None:
        num_tokens = 0
        for output in outputs:
            passed = self.passed[output.request_id]
            num_tokens += len(output.new_token_ids)
            passed.token_ids += output.new_token_ids
            passed.token_times += [message.timestamp] if output.new_token_ids else []
            if output.prefill_stats is not None:
                passed.prefill = output.prefill_stats
                num_tokens += output.prefill_stats.num_prompt_tokens
            self._count_events(passed, output)
        if outputs:
            self.tokens_per_step.append(num_tokens)
        if message.scheduler_stats is not None:
            self.scheduler = message.scheduler_stats
            self._count_lookups(message.scheduler_stats.prefix_cache_stats)

    def _count_events(self, passed: Passed, output: EngineCoreOutput) -> None:
        for event in output.events or ():
            if event.type is EventType.QUEUED:
                passed.queued_at = event.timestamp
            elif event.type is EventType.SCHEDULED and passed.scheduled_at is None:
                passed.scheduled_at = event.timestamp
            passed.num_preemptions += event.type is EventType.PREEMPTED

    def _count_lookups(self, stats: PrefixCacheStats) -> None:
        for name in ("queries", "hits", "preempted_queries", "preempted_hits"):
            self.lookups[name] += getattr(stats, name)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        results: list[Any] = await asyncio.gather(*self._tasks, return_exceptions=True)
        self._core.__exit__(None, None, None)
        self._context.destroy(linger=0)
        self._front_end.close()
        assert [result for result in results if not isinstance(result, asyncio.CancelledError)] == []
