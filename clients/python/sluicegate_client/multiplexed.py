"""Many requests on one stream: what a router or a batch client needs to pay for one message per step of the engine."""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Protocol, Self, Unpack
from weakref import WeakValueDictionary

import grpc

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate_client.async_errors import readable_async_errors
from sluicegate_client.errors import CallCancelledError, SluicegateError, error_of_request
from sluicegate_client.events import StreamEvents
from sluicegate_client.requests import GenerateOptions, generate_request
from sluicegate_client.responses import Delta, Generation, Output

OpenCall = Callable[
    [AsyncIterator[pb.MultiplexedRequest]],
    "grpc.aio.StreamStreamCall[pb.MultiplexedRequest, pb.MultiplexedResponse]",
]


class _Sender(Protocol):
    def abort(self, request_id: str) -> None: ...


class MultiplexedStream(StreamEvents):
    """Deltas of one request of a session as they come; those that nobody has asked for yet are merged into one.

    Leaving the ``async with`` block, or dropping the stream, aborts the request and no other. Iterating raises
    ``SluicegateError`` when the request or the session fails, and ends quietly after ``cancel()``.
    """

    def __init__(self, session: _Sender, request_id: str) -> None:
        super().__init__(_Abort(session, request_id))
        self.request_id = request_id
        self._deltas: deque[Delta] = deque()
        self._arrived = asyncio.Event()
        self._num_unfinished = 0
        self._error: SluicegateError | None = None

    @property
    def is_over(self) -> bool:
        """Nothing more comes."""
        return self.cancelled or self._error is not None or self._num_unfinished == 0

    def expect(self, num_sequences: int) -> None:
        """It has been sent."""
        self._num_unfinished = num_sequences

    def take(self, event: pb.GenerateStreamResponse) -> None:
        """Keep ``event`` for the reader."""
        delta = self._record(event)
        if delta is None:
            self._num_unfinished -= event.HasField("finished")
        elif self._deltas and self._deltas[-1].index == delta.index:
            self._deltas[-1] = _joined(self._deltas[-1], delta)
        else:
            self._deltas.append(delta)
        self._arrived.set()

    def fail(self, error: SluicegateError) -> None:
        """Raise ``error`` after the deltas that came before it."""
        if not self.is_over:
            self._error = error
        self._arrived.set()

    def cancel(self) -> None:
        """Ends the request in the engine. The iteration ends quietly. Harmless when it is over."""
        if not self.is_over:
            super().cancel()
        self._arrived.set()

    def __del__(self) -> None:
        if not self.is_over:
            super().__del__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        while not self._deltas or self.cancelled:
            if self._error is not None:
                raise self._error
            if self.is_over:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._deltas.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self.cancel()


class MultiplexedSession:
    """Any number of requests on one call. Leaving the ``async with`` block ends what still runs.

    Made by ``AsyncClient.multiplexed``. A request that fails raises from its own stream; when the call itself fails,
    every stream that is not over raises, and so does what is asked for later.
    """

    def __init__(self, open_call: OpenCall, address: str) -> None:
        self._address = address
        self._commands: asyncio.Queue[pb.MultiplexedRequest] = asyncio.Queue()
        self._streams: WeakValueDictionary[str, MultiplexedStream] = WeakValueDictionary()
        self._num_unfinished: dict[str, int] = {}
        """Sequences whose end has not come, by request_id; also of streams that were cancelled or dropped."""
        self._error: SluicegateError | None = None
        self._open_call = open_call

    def stream(self, prompt: str | None = None, **options: Unpack[GenerateOptions]) -> MultiplexedStream:
        """Continues ``prompt`` (or ``token_ids``, or ``chat``), beside everything else. See ``AsyncClient.stream``.

        Raises ValueError for the id of a stream of this session whose end has not come, though it was cancelled.
        """
        if self._error is not None:
            raise self._error
        request = generate_request(prompt, options)
        request.request_id = request.request_id or uuid.uuid4().hex
        if request.request_id in self._num_unfinished:
            raise ValueError(f"request_id {request.request_id!r} is the id of a stream that is not over")
        stream = MultiplexedStream(self, request.request_id)
        num_sequences = request.sampling_params.n if request.sampling_params.HasField("n") else 1
        stream.expect(num_sequences)
        self._num_unfinished[request.request_id] = num_sequences
        self._streams[request.request_id] = stream
        self._commands.put_nowait(pb.MultiplexedRequest(generate=request))
        return stream

    async def generate(self, prompt: str | None = None, **options: Unpack[GenerateOptions]) -> Generation:
        """As ``stream``, but returns when every sequence has ended."""
        async with self.stream(prompt, **options) as stream:
            return _generation(stream, [delta async for delta in stream])

    def abort(self, request_id: str) -> None:
        """Tell the server that nobody wants this request any more."""
        self._commands.put_nowait(pb.MultiplexedRequest(abort=pb.MultiplexedAbort(request_ids=[request_id])))

    async def _read(self) -> None:
        try:
            with readable_async_errors(self._address):
                async for response in self._call:
                    self._dispatch(response)
            self._fail(CallCancelledError("the server has ended the session"))
        except SluicegateError as error:
            self._fail(error)

    def _dispatch(self, response: pb.MultiplexedResponse) -> None:
        for event in response.events:
            if (stream := self._streams.get(event.request_id)) is not None and not stream.is_over:
                stream.take(event)
            if event.HasField("finished"):
                self._note_finished(event.request_id)
        for failure in response.errors:
            self._num_unfinished.pop(failure.request_id, None)
            if (stream := self._streams.get(failure.request_id)) is not None:
                stream.fail(error_of_request(failure.status))

    def _note_finished(self, request_id: str) -> None:
        num_unfinished = self._num_unfinished.get(request_id, 0) - 1
        if num_unfinished > 0:
            self._num_unfinished[request_id] = num_unfinished
        else:
            self._num_unfinished.pop(request_id, None)

    def _fail(self, error: SluicegateError) -> None:
        self._error = error
        for stream in [*self._streams.values()]:
            stream.fail(error)

    async def _sent(self) -> AsyncIterator[pb.MultiplexedRequest]:
        while True:
            yield await self._commands.get()

    async def __aenter__(self) -> Self:
        self._call = self._open_call(self._sent())
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self._call.cancel()
        self._reader.cancel()
        await asyncio.wait([self._reader])
        self._fail(CallCancelledError("the session was left"))


class _Abort:
    """What ends one request of a session, as ``cancel`` ends a call of its own."""

    def __init__(self, session: _Sender, request_id: str) -> None:
        self._session = session
        self._request_id = request_id

    def cancel(self) -> bool:
        self._session.abort(self._request_id)
        return True


def _joined(first: Delta, second: Delta) -> Delta:
    """``first`` is nobody else's yet."""
    first.token_ids.extend(second.token_ids)
    first.logprobs.extend(second.logprobs)
    return Delta(first.index, first.text + second.text, first.token_ids, first.logprobs)


def _generation(stream: MultiplexedStream, deltas: list[Delta]) -> Generation:
    assert stream.started is not None, "it has ended"
    assert stream.usage is not None, "it has ended"
    outputs = [Output(i, "", [], [], end.finish_reason, end.stop) for i, end in sorted(stream.finished.items())]
    texts: list[list[str]] = [[] for _ in outputs]
    for delta in deltas:
        texts[delta.index].append(delta.text)
        outputs[delta.index].token_ids.extend(delta.token_ids)
        outputs[delta.index].logprobs.extend(delta.logprobs)
    joined = [
        Output(each.index, "".join(text), each.token_ids, each.logprobs, each.finish_reason, each.stop)
        for each, text in zip(outputs, texts, strict=True)
    ]
    started = stream.started
    return Generation(stream.request_id, joined, stream.usage, started.prompt_token_ids, started.prompt_logprobs)
