"""A server of sluicegate.v1 without a model: it answers with the words of the prompt, and does what some of them say.
A prompt of tokens is answered with max_tokens words.

"hang" waits until the call ends, "refuse" and "overload" fail with details, "leave" fails as a draining server does,
"busy" as an overloaded one, but only for the first ``num_refusals`` calls. A stream breaks off before each "break", but
only the first ``num_breaks`` times; a "vary" is another word in every call. The next ``num_live`` requests are
taken for ones that it has already.
"""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NoReturn
from zlib import crc32

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_status import rpc_status

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1 import inference_service_pb2_grpc as pb_grpc


class FakeInferenceService(pb_grpc.InferenceServiceServicer):
    def __init__(self) -> None:
        self.num_refusals = 2
        self.num_breaks = 1
        self.num_live = 0
        self.requests: list[Any] = []
        self.aborted: list[str] = []
        """Requests of multiplexed streams."""
        self.ended = threading.Event()
        """Set when the first call has ended, however it ended."""

    def GenerateStream(self, request: Any, context: Any) -> Iterator[pb.GenerateStreamResponse]:
        words = self._words(request, context)
        request_id = request.request_id or "made-by-server"
        yield pb.GenerateStreamResponse(request_id=request_id, started=pb.Started(num_prompt_tokens=len(words)))
        for index in range(request.sampling_params.n or 1):
            for token_id, word in enumerate(words):
                if word == "hang":
                    _hang(context)
                if word == "break" and self.num_breaks:
                    self.num_breaks -= 1
                    _fail(context, *_GONE)
                if word == "vary":
                    word, token_id = f"vary{len(self.requests)}", 1000 + len(self.requests)
                yield pb.GenerateStreamResponse(
                    request_id=request_id, delta=pb.Delta(index=index, text=word + " ", token_ids=[token_id])
                )
            yield pb.GenerateStreamResponse(request_id=request_id, finished=_finished(index, words))

    def Generate(self, request: Any, context: Any) -> pb.GenerateResponse:
        words = self._words(request, context)
        if "hang" in words:
            _hang(context)
        n = request.sampling_params.n or 1
        return pb.GenerateResponse(
            request_id=request.request_id or "made-by-server",
            outputs=[_output(index, words) for index in range(n)],
            usage=_usage(len(words), len(words) * n),
        )

    def GenerateMultiplexed(self, commands: Any, context: Any) -> Iterator[pb.MultiplexedResponse]:
        """Answers each request at once and whole; one that hangs waits for its abort."""
        context.add_callback(self.ended.set)
        for command in commands:
            for request_id in command.abort.request_ids:
                self.aborted.append(request_id)
                finished = pb.Finished(finish_reason=pb.FINISH_REASON_ABORT)
                yield _event(request_id, finished=finished)
            if command.HasField("generate"):
                yield from self._multiplexed(command.generate, context)

    def _multiplexed(self, request: Any, context: Any) -> Iterator[pb.MultiplexedResponse]:
        self.requests.append(request)
        words, name = _prompt_words(request), request.request_id
        if "break" in words:
            _fail(context, *_FAILURES["leave"])
        if words[0] in _FAILURES:
            code, message, *details = _FAILURES[words[0]]
            yield pb.MultiplexedResponse(
                errors=[pb.RequestError(request_id=name, status=_status(code, message, details))]
            )
            return
        yield _event(name, started=pb.Started(num_prompt_tokens=len(words)))
        for index in range(request.sampling_params.n or 1):
            for token_id, word in enumerate(words):
                if word == "hang":
                    return
                yield _event(name, delta=pb.Delta(index=index, text=word + " ", token_ids=[token_id]))
            yield _event(name, finished=_finished(index, words))

    def Tokenize(self, request: Any, context: Any) -> pb.TokenizeResponse:
        return pb.TokenizeResponse(token_ids=[crc32(word.encode()) for word in self._words(request, context)])

    def Detokenize(self, request: Any, context: Any) -> pb.DetokenizeResponse:
        self.requests.append(request)
        return pb.DetokenizeResponse(text=" ".join("x" * token_id for token_id in request.token_ids))

    def _words(self, request: Any, context: Any) -> list[str]:
        self.requests.append(request)
        context.add_callback(self.ended.set)
        words = _prompt_words(request)
        for word in words:
            if word in _FAILURES:
                _fail(context, *_FAILURES[word])
        if self.num_live:
            self.num_live -= 1
            _fail(context, grpc.StatusCode.ALREADY_EXISTS, "that request is live")
        if "busy" in words and len(self.requests) <= self.num_refusals:
            _fail(context, *_BUSY)
        return words


_FAILURES = {
    "refuse": (
        grpc.StatusCode.INVALID_ARGUMENT,
        "sampling_params.top_p: must be in (0, 1], got 3",
        ErrorInfo(reason="INVALID_REQUEST", domain="sluicegate"),
        BadRequest(
            field_violations=[
                BadRequest.FieldViolation(field="sampling_params.top_p", description="must be in (0, 1], got 3")
            ]
        ),
    ),
    "overload": (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "the queue is full: 8 requests",
        ErrorInfo(reason="QUEUE_FULL", domain="sluicegate"),
        RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000)),
    ),
    "leave": (
        grpc.StatusCode.UNAVAILABLE,
        "the server is draining",
        ErrorInfo(reason="DRAINING", domain="sluicegate"),
        RetryInfo(retry_delay=Duration(seconds=2)),
    ),
}

_BUSY = (
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    "the queue is full: 8 requests",
    ErrorInfo(reason="QUEUE_FULL", domain="sluicegate"),
    RetryInfo(retry_delay=Duration(nanos=10_000_000)),
)

_GONE = (
    grpc.StatusCode.UNAVAILABLE,
    "the core is gone",
    ErrorInfo(reason="CORE_LOST", domain="sluicegate"),
    RetryInfo(retry_delay=Duration(nanos=10_000_000)),
)


def _event(request_id: str, **event: Any) -> pb.MultiplexedResponse:
    return pb.MultiplexedResponse(events=[pb.GenerateStreamResponse(request_id=request_id, **event)])


def _fail(context: Any, code: grpc.StatusCode, message: str, *details: Any) -> NoReturn:
    context.abort_with_status(rpc_status.to_status(_status(code, message, details)))


def _status(code: grpc.StatusCode, message: str, details: Iterable[Any]) -> Status:
    status = Status(code=code.value[0], message=message)
    for detail in details:
        status.details.add().Pack(detail)
    return status


def _prompt_words(request: Any) -> list[str]:
    match request.WhichOneof("input" if isinstance(request, pb.TokenizeRequest) else "prompt"):
        case "chat":
            return " ".join(message.content for message in request.chat.messages).split()
        case "text":
            return request.text.split()
    return ["word"] * request.sampling_params.max_tokens


def _hang(context: Any) -> None:
    ended = threading.Event()
    if context.add_callback(ended.set):
        ended.wait()


def _usage(num_prompt_tokens: int, num_output_tokens: int) -> pb.Usage:
    return pb.Usage(num_prompt_tokens=num_prompt_tokens, num_output_tokens=num_output_tokens)


def _finished(index: int, words: list[str]) -> pb.Finished:
    usage = _usage(len(words), len(words))
    if "cut" in words:
        return pb.Finished(index=index, finish_reason=pb.FINISH_REASON_LENGTH, usage=usage)
    return pb.Finished(index=index, finish_reason=pb.FINISH_REASON_STOP, stop_string="end", usage=usage)


def _output(index: int, words: list[str]) -> pb.SequenceOutput:
    return pb.SequenceOutput(
        index=index,
        text="".join(word + " " for word in words),
        token_ids=range(len(words)),
        logprobs=[pb.TokenLogprobs(token_id=0, logprob=-0.5, rank=1, top=[pb.TopLogprob(token_id=0, logprob=-0.5)])],
        finish_reason=pb.FINISH_REASON_LENGTH,
    )


class FakeServer:
    def __init__(self, address: str) -> None:
        self.service = FakeInferenceService()
        self.health = health.HealthServicer()
        self._server = grpc.server(ThreadPoolExecutor(16))
        pb_grpc.add_InferenceServiceServicer_to_server(self.service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        port = self._server.add_insecure_port(address)
        self.address = address if address.startswith("unix:") else f"127.0.0.1:{port}"

    def set_serving(self, serving: bool) -> None:
        for name in ("", "readiness"):
            self.health.set(name, HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING)


@contextmanager
def fake_server(address: str = "127.0.0.1:0", serving: bool = True) -> Iterator[FakeServer]:
    server = FakeServer(address)
    server.set_serving(serving)
    server._server.start()
    try:
        yield server
    finally:
        server._server.stop(None).wait()
