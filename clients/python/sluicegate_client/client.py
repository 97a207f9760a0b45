"""The client for plain Python; ``async_client`` is its twin for asyncio."""

import time
from collections.abc import Sequence
from typing import Self, Unpack

import grpc
from grpc.experimental import ChannelOptions as GrpcOptions
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from sluicegate_client.channel import DEFAULT_ADDRESS, ChannelOptions, balancing_options, channel_options, key_metadata
from sluicegate_client.errors import CallCancelledError, UnavailableError, readable_errors
from sluicegate_client.events import StreamEvents
from sluicegate_client.readiness import WATCH_PAUSE_S, Deadline, readiness_deadline
from sluicegate_client.requests import (
    ChatMessage,
    GenerateOptions,
    detokenize_request,
    embed_request,
    generate_request,
    tokenize_request,
)
from sluicegate_client.responses import Delta, Generation


class Stream(StreamEvents):
    """Deltas of a request as they come. Leaving the ``with`` block, or dropping the stream, cancels the call.

    Iterating raises ``SluicegateError`` when the call fails, and ends quietly after ``cancel()``.
    """

    def __init__(self, call: "grpc.CallIterator[pb.GenerateStreamResponse]", address: str) -> None:
        super().__init__(call)
        self._call = call
        self._address = address

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delta:
        try:
            with readable_errors(self._address):
                for response in self._call:
                    if (delta := self._record(response)) is not None:
                        return delta
        except CallCancelledError:
            if not self.cancelled:
                raise
        raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.cancel()


class Client:
    """A connection to a server, made on first use; any number of threads may share it.

    ``address`` is ``HOST:PORT``, ``unix:/path`` or, for all that are ready of several servers in turn,
    ``dns:///HOST:PORT`` or ``ipv4:A:PORT,B:PORT``. ``credentials``: those of ``tls_credentials``, None: plaintext.
    ``api_key``: of a server that asks for one. Calls raise the subclasses of ``SluicegateError``. ``timeout`` is
    the call's deadline in seconds (None: none).
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        api_key: str | None = None,
        options: ChannelOptions = (),
    ) -> None:
        self._address = address
        self._metadata = key_metadata(api_key)
        # Streams that the reader's own thread drives. Otherwise a Ctrl-C that comes while a stream is being made leaves
        # one that no thread drives, and for which closing the channel waits forever.
        options = channel_options([(GrpcOptions.SingleThreadedUnaryStream, 1), *balancing_options(address), *options])
        self._channel = (
            grpc.secure_channel(address, credentials, options)
            if credentials
            else grpc.insecure_channel(address, options)
        )
        self._stub = InferenceServiceStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def generate(
        self, prompt: str | None = None, *, timeout: float | None = None, **options: Unpack[GenerateOptions]
    ) -> Generation:
        """Continues ``prompt`` (or ``token_ids``, or ``chat``) and returns when every sequence has ended."""
        request = generate_request(prompt, options)
        with readable_errors(self._address):
            return Generation.from_proto(self._stub.Generate(request, timeout=timeout, metadata=self._metadata))

    def stream(
        self, prompt: str | None = None, *, timeout: float | None = None, **options: Unpack[GenerateOptions]
    ) -> Stream:
        """The same as ``generate``, as it goes."""
        request = generate_request(prompt, options)
        return Stream(self._stub.GenerateStream(request, timeout=timeout, metadata=self._metadata), self._address)

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
        with readable_errors(self._address):
            return list(self._stub.Tokenize(request, timeout=timeout, metadata=self._metadata).token_ids)

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
        with readable_errors(self._address):
            return self._stub.Detokenize(request, timeout=timeout, metadata=self._metadata).text

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
        with readable_errors(self._address):
            return list(self._stub.Embed(request, timeout=timeout, metadata=self._metadata).embedding)

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
