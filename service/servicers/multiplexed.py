"""One stream that carries many requests: InferenceService.GenerateMultiplexed.

    client ──▶ _obey ──▶ a Run for each request ──▶ core
    client ◀── responses ◀── the Runs that were touched, taken together ◀── a message of the core

For a token there is neither a future nor a task nor a message of its own. An output of the core marks its run as
touched, and the first one wakes whoever writes; that takes what all touched runs have, which by then is all of the
core's message. While the client does not read, the outputs of each run are merged in its one slot.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack

from core.wire.sampling_params import Violation
from service.calls.call import part_for, running
from service.errors import Aborted, AlreadyExists, InvalidRequest, shown, to_rpc_status
from service.events import Delta, Event, Finished
from service.generation_request import GenerationRequest
from service.run import Run
from service.servicers.edge import as_failure
from service.servicers.event_encoder import EventEncoder
from service.servicers.intake import Intake
from service.servicers.protobuf_bytes import bytes_tag, varint
from service.servicers.responses import off_loop_if_large
from service.translate import MAX_REQUEST_ID_BYTES, read_request_ids, request_id_violations
from service.wakeup import Wakeup
from sluicegate.v1 import inference_service_pb2 as pb

MAX_RESPONSE_BYTES = 2**20
"""Clients refuse a message of 4 MiB, unless told otherwise."""
_MAX_ERRORS = 256
"""With so many to tell, no further request is read."""
_EVENTS = bytes_tag(pb.MultiplexedResponse.EVENTS_FIELD_NUMBER)
_ERRORS = bytes_tag(pb.MultiplexedResponse.ERRORS_FIELD_NUMBER)
_NO_COMMAND = InvalidRequest([Violation("command", "is required: one of generate, abort")])
_NO_REQUEST_ID = InvalidRequest([Violation("generate.request_id", "is required on a multiplexed stream")])


class MultiplexedSession:
    """One call. Read ``responses`` to its end, or close it: then nothing of the session runs any more."""

    def __init__(
        self, intake: Intake, min_flush_interval_s: float = 0.0, max_response_bytes: int = MAX_RESPONSE_BYTES
    ) -> None:
        """``max_response_bytes``: no further request is added to a response of this size."""
        self._max_response_bytes = max_response_bytes
        self._intake = intake
        self._wakeup = Wakeup(min_flush_interval_s)
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._live: dict[str, _LiveRequest] = {}
        self._touched: deque[_LiveRequest] = deque()
        self._errors: list[bytes] = []
        self._has_told_errors = asyncio.Event()

    def __repr__(self) -> str:
        return (
            f"MultiplexedSession({len(self._live)} live, {len(self._reading)} being read, {len(self._errors)} errors)"
        )

    async def responses(self, commands: AsyncIterator[pb.MultiplexedRequest]) -> AsyncIterator[bytes]:
        """MultiplexedResponse, serialized. Ends when ``commands`` have ended and every request has."""
        obeying = asyncio.create_task(self._obey(commands))
        obeying.add_done_callback(self._on_last_command)
        try:
            while self._may_have_more(obeying):
                await self._wakeup.wait()
                while self._touched or self._errors:
                    response = await self._next_response()
                    is_all = not self._touched
                    yield response
                    if is_all:  # What has come since then waits for its turn.
                        break
            obeying.result()
        finally:
            obeying.cancel()
            self._drop_all()

    def _may_have_more(self, obeying: asyncio.Task[None]) -> bool:
        if not obeying.done():
            return True
        return obeying.exception() is None and bool(self._live or self._reading or self._errors)

    def _on_last_command(self, obeying: asyncio.Task[None]) -> None:
        if not obeying.cancelled():
            obeying.exception()  # It has been seen, should nobody else care.
        self._wakeup.set(is_urgent=True)

    async def _obey(self, commands: AsyncIterator[pb.MultiplexedRequest]) -> None:
        async for command in commands:
            match command.WhichOneof("command"):
                case "generate":
                    self._generate(command.generate)
                case "abort":
                    self._abort(command.abort.request_ids)
                case _:
                    self._fail("", _NO_COMMAND)
            while len(self._errors) >= _MAX_ERRORS:
                self._has_told_errors.clear()
                await self._has_told_errors.wait()

    def _generate(self, request: pb.GenerateRequest) -> None:
        request_id = request.request_id
        if not request_id:
            self._fail("", _NO_REQUEST_ID)
            return
        if len(request_id.encode()) > MAX_REQUEST_ID_BYTES:  # Not to be sent back: errors wait for the client to read.
            self._fail("", InvalidRequest(request_id_violations(request_id)))
            return
        try:
            if request_id in self._live or request_id in self._reading:
                raise AlreadyExists(f"request_id {shown(request_id)} is the id of a live request")
            with running(part_for(request)):
                if (short := self._intake.read_if_short(request)) is not None:
                    self._begin(short)
                else:
                    self._reading[request_id] = asyncio.create_task(self._read_and_begin(request))
        except Exception as error:
            self._fail(request_id, error)

    async def _read_and_begin(self, request: pb.GenerateRequest) -> None:
        try:
            self._begin(await self._intake.read(request))
        except Exception as error:
            self._fail(request.request_id, error)
        finally:
            if self._reading.get(request.request_id) is asyncio.current_task():
                del self._reading[request.request_id]
            self._wakeup.set(is_urgent=True)

    def _begin(self, request: GenerationRequest) -> None:
        live = _LiveRequest(request.request_id, self._touched, self._wakeup.set)
        live.run = live.exits.enter_context(self._intake.open(request, live.on_arrival))
        self._live[request.request_id] = live

    def _abort(self, request_ids: Sequence[str]) -> None:
        try:
            named = read_request_ids(request_ids)
        except InvalidRequest as error:
            self._fail("", error)
            return
        for request_id in named:
            if (live := self._live.get(request_id)) is not None:
                live.run.abort()
            elif (reading := self._reading.pop(request_id, None)) is not None:
                reading.cancel()
                self._fail(request_id, Aborted("aborted before it began"))

    async def _next_response(self) -> bytes:
        """What has come of as many requests as fit."""
        parts, self._errors = self._errors, []
        self._has_told_errors.set()
        num_bytes = sum(map(len, parts))
        while self._touched and num_bytes < self._max_response_bytes:
            live = self._touched.popleft()
            live.is_touched = False
            for event in self._taken(live, parts):
                if event.__class__ is Delta and event.logprobs is None:
                    message = live.encoder.encode_plain(event)
                else:
                    message = await off_loop_if_large(live.encoder.encode, event)
                size = len(message)
                parts += _EVENTS, varint(size), message
                num_bytes += size
        return b"".join(parts)

    def _taken(self, live: "_LiveRequest", parts: list[bytes]) -> Sequence[Event]:
        """What ``live`` has. Its failure is appended to ``parts``."""
        if self._live.get(live.request_id) is not live:
            return ()
        try:
            events = live.run.take()
        except Exception as error:
            parts.append(_encoded_error(live.request_id, error))
            self._drop(live)
            return ()
        if events and isinstance(events[-1], Finished) and live.run.finished:
            self._drop(live)
        return events

    def _fail(self, request_id: str, error: Exception) -> None:
        self._errors.append(_encoded_error(request_id, error))
        self._wakeup.set(is_urgent=True)

    def _drop(self, live: "_LiveRequest") -> None:
        del self._live[live.request_id]
        live.exits.close()
        del live.run  # Its stream knows ``live``: in a circle the request would be kept until one is looked for.

    def _drop_all(self) -> None:
        for reading in self._reading.values():
            reading.cancel()
        for live in [*self._live.values()]:
            self._drop(live)


class _LiveRequest:
    """One request of the session."""

    __slots__ = ("_touched", "_wake", "encoder", "exits", "is_touched", "request_id", "run")

    run: Run[Event]

    def __init__(self, request_id: str, touched: "deque[_LiveRequest]", wake: Callable[[bool], None]) -> None:
        """It puts itself among ``touched`` when something has come."""
        self._touched = touched
        self._wake = wake
        self.request_id = request_id
        self.encoder = EventEncoder(request_id)
        self.exits = ExitStack()
        self.is_touched = False

    def on_arrival(self, is_urgent: bool) -> None:
        """Runs for every token."""
        touched = self._touched
        if not self.is_touched:
            self.is_touched = True
            touched.append(self)
        if is_urgent or len(touched) == 1:
            self._wake(is_urgent)


def _encoded_error(request_id: str, error: Exception) -> bytes:
    status = to_rpc_status(as_failure(error, request_id))
    failure = pb.RequestError(request_id=request_id, status=status).SerializeToString()
    return _ERRORS + varint(len(failure)) + failure
