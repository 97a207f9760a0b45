"""The client for plain Python; ``async_client`` is its twin for asyncio."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Self, TypeAlias, TypeVar, Unpack

import grpc
from grpc.experimental import ChannelOptions as GrpcOptions
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from sluicegate_client.channel import DEFAULT_ADDRESS, ChannelOptions, balancing_options, key_metadata, open_channel
from sluicegate_client.errors import SluicegateError, UnavailableError, readable_errors
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
_Call: TypeAlias = "grpc.CallIterator[pb.GenerateStreamResponse]"


class Stream(RepeatableStream):
    """Deltas of a request as they come. Leaving the ``with`` block, or dropping the stream, cancels the call.

    Iterating raises ``SluicegateError`` when the call fails, and ends quietly after ``cancel()``.
    """

    def __init__(
        self, call: _Call, repeat: Callable[[], _Call], address: str, attempts: Attempts, resumes: bool
    ) -> None:
        super().__init__(call, attempts, resumes)
        self._call = call
        self._repeat = repeat
        self._address = address
        self._is_cancelled = threading.Event()

    def cancel(self) -> None:
        """Ends the call, and the request in the engine. The iteration ends quietly. Harmless when it is over."""
        super().cancel()
        self._is_cancelled.set()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delta:
        while not self.cancelled:
            try:
                with readable_errors(self._address):
                    for response in self._call:
                        if (delta := self._record(response)) is not None:
                            return delta
                break
            except SluicegateError as error:
                if not self.cancelled:
                    self._repeat_after(self._wait_s(error))
        raise StopIteration

    def _repeat_after(self, wait_s: float) -> None:
        if not self._is_cancelled.wait(wait_s):
            self._call = self._repeat()
            self._follow(self._call)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.cancel()


class Client:
    """A connection to a server, made on first use; any number of threads may share it.

    ``address`` is ``HOST:PORT``, ``unix:/path`` or, for all that are ready of several servers in turn,
    ``dns:///HOST:PORT`` or ``ipv4:A:PORT,B:PORT``. ``credentials``: those of ``tls_credentials``, None: plaintext.
    ``api_key``: of a server that asks for one. Calls raise the subclasses of ``SluicegateError``. ``timeout`` is
    the call's deadline in seconds (None: none). ``retry``: when a call that fails for now is made again.
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
        # Streams that the reader's own thread drives. Otherwise a Ctrl-C that comes while a stream is being made leaves
        # one that no thread drives, and for which closing the channel waits forever.
        options = [(GrpcOptions.SingleThreadedUnaryStream, 1), *balancing_options(address), *options]
        self._channel = open_channel(address, credentials, options)
        self._stub = InferenceServiceStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def generate(
        self, prompt: str | None = None, *, timeout: float | None = None, **options: Unpack[GenerateOptions]
    ) -> Generation:
        """Continues ``prompt`` (or ``token_ids``, or ``chat``) and returns when every sequence has ended.

        Raises TypeError and ValueError for options that cannot be sent, InvalidRequestError for those that the server
        refuses, NotFoundError for a model or adapter that it does not have, OverloadedError and UnavailableError when
        ``retry`` is used up, and DeadlineExceededError.
        """
        request = generate_request(prompt, options)
        return Generation.from_proto(self._answer(self._stub.Generate, request, timeout))

    def stream(
        self,
        prompt: str | None = None,
        *,
        timeout: float | None = None,
        resume: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Stream:
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

        return Stream(call(), call, self._address, attempts, resume)

    def tokenize(
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
        return list(self._answer(self._stub.Tokenize, request, timeout).token_ids)

    def detokenize(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = False,
        model: str = "",
        timeout: float | None = None,
    ) -> str:
        """The text of ``token_ids``; incomplete characters become U+FFFD."""
        request = detokenize_request(token_ids, skip_special_tokens, model)
        return self._answer(self._stub.Detokenize, request, timeout).text

    def embed(
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
        return list(self._answer(self._stub.Embed, request, timeout).embedding)

    def _answer(
        self, rpc: "grpc.UnaryUnaryMultiCallable[_Request, _Answer]", request: _Request, timeout: float | None
    ) -> _Answer:
        attempts = Attempts(self._retry, timeout)
        while True:
            try:
                with readable_errors(self._address):
                    return rpc(request, timeout=attempts.remaining_s, metadata=self._metadata)
            except SluicegateError as error:
                wait_s = attempts.wait_s(error)
            time.sleep(wait_s)

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Returns when the server serves. Raises DeadlineExceededError when it does not within ``timeout`` seconds."""
        with readiness_deadline(self._address, timeout) as deadline:
            while not self._sees_serving(deadline):
                time.sleep(WATCH_PAUSE_S)

    def _sees_serving(self, deadline: Deadline) -> bool:
        try:
            with readable_errors(self._address):
                for answer in self._health.Watch(
                    HealthCheckRequest(), timeout=deadline.remaining_s, wait_for_ready=True
                ):
                    if answer.status == HealthCheckResponse.SERVING:
                        return True
        except UnavailableError:
            pass
        return False

    def close(self) -> None:
        """Cancels what still runs."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()
