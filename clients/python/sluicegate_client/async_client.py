"""The client for asyncio; ``client`` is its twin for plain Python."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self, TypeAlias, TypeVar, Unpack

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from sluicegate_client.async_errors import readable_async_errors
from sluicegate_client.channel import (
    DEFAULT_ADDRESS,
    ChannelOptions,
    balancing_options,
    key_metadata,
    open_async_channel,
)
from sluicegate_client.errors import SluicegateError, UnavailableError
from sluicegate_client.multiplexed import MultiplexedSession
from sluicegate_client.readiness import WATCH_PAUSE_S, Deadline, readiness_deadline
from sluicegate_client.repeatable import RepeatableStream, make_repeatable
from sluicegate_client.requests import (
    ChatMessage,
    GenerateOptions,
    detokenize_request,
    embed_request,
    generate_request,
    tokenize_request,
)
from sluicegate_client.responses import Delta, Generation
from sluicegate_client.retry import Attempts, Retry

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")
_Call: TypeAlias = "grpc.aio.UnaryStreamCall[pb.GenerateRequest, pb.GenerateStreamResponse]"


class AsyncStream(RepeatableStream):
    """Deltas of a request as they come. Leaving the ``async with`` block, or dropping the stream, cancels the call.

    Iterating raises ``SluicegateError`` when the call fails, and ends quietly after ``cancel()``.
    """

    def __init__(
        self, call: _Call, repeat: Callable[[], _Call], address: str, attempts: Attempts, resumes: bool
    ) -> None:
        super().__init__(call, attempts, resumes)
        self._call = call
        self._repeat = repeat
        self._address = address
        self._is_cancelled = asyncio.Event()

    def cancel(self) -> None:
        """Ends the call, and the request in the engine. The iteration ends quietly. Harmless when it is over."""
        super().cancel()
        self._is_cancelled.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        while not self.cancelled:
            try:
                with readable_async_errors(self._address):
                    async for response in self._call:
                        if (delta := self._record(response)) is not None:
                            return delta
                break
            except SluicegateError as error:
                if not self.cancelled:
                    await self._repeat_after(self._wait_s(error))
        raise StopAsyncIteration

    async def _repeat_after(self, wait_s: float) -> None:
        try:
            await asyncio.wait_for(self._is_cancelled.wait(), wait_s)
        except TimeoutError:
            self._call = self._repeat()
            self._follow(self._call)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self.cancel()


class AsyncClient:
    """A connection to a server, made on first use, for one event loop.

    ``address`` is ``HOST:PORT``, ``unix:/path`` or, for all that are ready of several servers in turn,
    ``dns:///HOST:PORT`` or ``ipv4:A:PORT,B:PORT``. ``credentials``: those of ``tls_credentials``, None: plaintext.
    ``api_key``: of a server that asks for one. Calls raise the subclasses of ``SluicegateError``. ``timeout`` is
    the call's deadline in seconds (None: none). ``retry``: when a call that fails for now is made again. Cancelling
    the task that awaits a call cancels the call.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        api_key: str | None = None,
        retry: Retry = Retry(),  # noqa: B008
        options: ChannelOptions = (),
    ) -> None:
        self._address = address
        self._retry = retry
        self._metadata = key_metadata(api_key)
        self._channel = open_async_channel(address, credentials, [*balancing_options(address), *options])
        self._stub = InferenceServiceStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    async def generate(
        self, prompt: str | None = None, *, timeout: float | None = None, **options: Unpack[GenerateOptions]
    ) -> Generation:
        """Continues ``prompt`` (or ``token_ids``, or ``chat``) and returns when every sequence has ended.

        Raises TypeError and ValueError for options that cannot be sent, InvalidRequestError for those that the server
        refuses, NotFoundError for a model or adapter that it does not have, OverloadedError and UnavailableError when
        ``retry`` is used up, and DeadlineExceededError.
        """
        request = generate_request(prompt, options)
        return Generation.from_proto(await self._answer(self._stub.Generate, request, timeout))

    def stream(
        self,
        prompt: str | None = None,
        *,
        timeout: float | None = None,
        resume: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> AsyncStream:
        """The same as ``generate``, as it goes.

        ``resume``: a stream that breaks off UNAVAILABLE is asked for again, of whichever server answers, and goes on
        where it was; ``started`` stays the first one's. The request gets a seed, if it has none and is not greedy. All
        is computed anew: if that differs from what was delivered, as another model's answer would, the error of the
        break is raised after all.
        """
        request = generate_request(prompt, options)
        if resume:
            make_repeatable(request)
        attempts = Attempts(self._retry, timeout)

        def call() -> _Call:
            return self._stub.GenerateStream(request, timeout=attempts.remaining_s, metadata=self._metadata)

        return AsyncStream(call(), call, self._address, attempts, resume)

    def multiplexed(self, *, timeout: float | None = None) -> MultiplexedSession:
        """Many requests on one stream: for a router or a batch, which then get one message per step of the engine.

        None of them is made again: what is refused is for the router, which may know another server, and for the batch,
        which should keep fewer on their way.

        >>> async with client.multiplexed() as session:
        ...     async for delta in session.stream("The capital of France is"):
        ...         print(delta.text, end="")
        """

        def open_call(commands: AsyncIterator[pb.MultiplexedRequest]) -> Any:
            deadline = None if timeout is None else Deadline(timeout).remaining_s
            return self._stub.GenerateMultiplexed(commands, timeout=deadline, metadata=self._metadata)

        return MultiplexedSession(open_call, self._address)

    async def tokenize(
        self,
        text: str | None = None,
        *,
        chat: Sequence[ChatMessage] | None = None,
        add_special_tokens: bool = True,
        model: str = "",
        timeout: float | None = None,
    ) -> list[int]:
        """The tokens that ``generate`` would use for ``text`` or ``chat``."""
        request = tokenize_request(text, chat, add_special_tokens, model)
        return list((await self._answer(self._stub.Tokenize, request, timeout)).token_ids)

    async def detokenize(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = False,
        model: str = "",
        timeout: float | None = None,
    ) -> str:
        """The text of ``token_ids``; incomplete characters become U+FFFD."""
        request = detokenize_request(token_ids, skip_special_tokens, model)
        return (await self._answer(self._stub.Detokenize, request, timeout)).text

    async def embed(
        self,
        text: str | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        model: str = "",
        timeout: float | None = None,
    ) -> list[float]:
        """The vector of ``text`` or ``token_ids``; ``dimensions`` None: all, ``normalize`` None: as the model says.

        Raises NotSupportedError if the model generates text.
        """
        request = embed_request(text, token_ids, dimensions, normalize, model)
        return list((await self._answer(self._stub.Embed, request, timeout)).embedding)

    async def _answer(
        self, rpc: "grpc.aio.UnaryUnaryMultiCallable[_Request, _Answer]", request: _Request, timeout: float | None
    ) -> _Answer:
        attempts = Attempts(self._retry, timeout)
        while True:
            try:
                with readable_async_errors(self._address):
                    return await rpc(request, timeout=attempts.remaining_s, metadata=self._metadata)
            except SluicegateError as error:
                wait_s = attempts.wait_s(error)
            await asyncio.sleep(wait_s)

    async def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Returns when the server serves. Raises DeadlineExceededError when it does not within ``timeout`` seconds."""
        with readiness_deadline(self._address, timeout) as deadline:
            while not await self._sees_serving(deadline):  # noqa: ASYNC110
                await asyncio.sleep(WATCH_PAUSE_S)

    async def _sees_serving(self, deadline: Deadline) -> bool:
        try:
            with readable_async_errors(self._address):
                async for answer in self._health.Watch(
                    HealthCheckRequest(), timeout=deadline.remaining_s, wait_for_ready=True
                ):
                    if answer.status == HealthCheckResponse.SERVING:
                        return True
        except UnavailableError:
            pass
        return False

    async def close(self) -> None:
        """Cancels what still runs."""
        await self._channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()
