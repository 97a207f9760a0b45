"""Many requests on one stream, over a real channel, with a scripted core behind it: tokens are bytes."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import grpc
import pytest

from core.wire.messages import EngineCoreOutput, FinishReason, RequestType
from core.wire.sampling_params import SamplingParams
from service.admission.live_call import LiveCall
from service.events import Event
from service.generation_request import GenerationRequest, OutputChoices
from service.run import Run
from service.server import GatewayServer
from service.servicers.intake import Intake
from service.servicers.multiplexed import MultiplexedSession
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.control_service_pb2 import GetLoadRequest
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from sluicegate_client import AsyncClient
from tests.service.errors_of_calls import CallError, error_of, of_entry
from tests.service.fake_core import FakeCore
from tests.service.servicers.calls import events_of, until_idle


class Session:
    """The client's side of one stream."""

    def __init__(self, inference: InferenceServiceStub) -> None:
        self._stub = inference

    async def generate(self, request_id: str, text: str = "hi", **fields: Any) -> None:
        await self.send(pb.MultiplexedRequest(generate=pb.GenerateRequest(request_id=request_id, text=text, **fields)))

    async def abort(self, *request_ids: str) -> None:
        await self.send(pb.MultiplexedRequest(abort=pb.MultiplexedAbort(request_ids=request_ids)))

    async def send(self, command: pb.MultiplexedRequest) -> None:
        await self.call.write(command)

    async def receive(self) -> pb.MultiplexedResponse:
        async with asyncio.timeout(20):
            response = await self.call.read()
        assert isinstance(response, pb.MultiplexedResponse), "the stream goes on"
        return response

    async def receive_error(self) -> tuple[str, CallError]:
        """The one error of a message with nothing else."""
        response = await self.receive()
        assert not response.events
        (error,) = response.errors
        return error.request_id, of_entry(error.status)

    async def rest(self) -> pb.MultiplexedResponse:
        """All that still comes after the client has said its last, as one message."""
        await self.call.done_writing()
        joined = pb.MultiplexedResponse()
        for response in await self.all_of_rest():
            joined.MergeFrom(response)
        return joined

    async def all_of_rest(self) -> list[pb.MultiplexedResponse]:
        """All that still comes."""
        responses = []
        async with asyncio.timeout(20):
            while isinstance(response := await self.call.read(), pb.MultiplexedResponse):
                responses.append(response)
        return responses

    async def __aenter__(self) -> Self:
        self.call = self._stub.GenerateMultiplexed()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.call.cancel()


@pytest.fixture
async def session(inference: InferenceServiceStub) -> AsyncIterator[Session]:
    async with Session(inference) as opened:
        yield opened


def texts(response: pb.MultiplexedResponse) -> dict[str, str]:
    """By request."""
    joined: dict[str, str] = {}
    for event in response.events:
        joined[event.request_id] = joined.get(event.request_id, "") + event.delta.text
    return joined


def ends(response: pb.MultiplexedResponse) -> dict[str, int]:
    """Why each request ended."""
    return {e.request_id: e.finished.finish_reason for e in response.events if e.HasField("finished")}


async def test_one_message_for_each_step_of_the_core(session: Session, core: FakeCore) -> None:
    """However many requests a step touched: what they gained comes together."""
    names = ["a", "b", "c"]
    for name in names:
        await session.generate(name)
    ids = [(await core.receive_add()).request_id for _ in names]
    core.emit(*(EngineCoreOutput(request_id, [65]) for request_id in ids))
    first = await session.receive()
    assert [event.WhichOneof("event") for event in first.events] == ["started", "delta"] * 3
    assert texts(first) == dict.fromkeys(names, "A")
    core.emit(*(EngineCoreOutput(request_id, [66]) for request_id in ids[1:]))
    assert texts(await session.receive()) == {"b": "B", "c": "B"}
    core.emit(*(EngineCoreOutput(request_id, [67], finish_reason=FinishReason.LENGTH) for request_id in ids))
    rest = await session.rest()
    assert texts(rest) == dict.fromkeys(names, "C")
    assert ends(rest) == dict.fromkeys(names, pb.FINISH_REASON_LENGTH)
    assert await session.call.code() is grpc.StatusCode.OK


async def test_events_are_those_of_a_stream_of_its_own(
    session: Session, inference: InferenceServiceStub, core: FakeCore
) -> None:
    """Two sequences with a stop string, tokens and text: the same events in the same order."""
    fields: dict[str, Any] = {
        "sampling_params": {"n": 2, "stop": ["!"], "temperature": 1},
        "output_options": {"token_ids": True, "echo_prompt_token_ids": True},
    }
    alone = inference.GenerateStream(pb.GenerateRequest(request_id="alone", text="hi", **fields))
    alone_ids = [(await core.receive_add()).request_id for _ in range(2)]
    await session.generate("shared", **fields)
    shared_ids = [(await core.receive_add()).request_id for _ in range(2)]
    for first, second in (alone_ids, shared_ids):
        for byte in "né".encode():
            core.emit_token(first, byte)
        core.emit_token(second, ord("x"))
        core.emit(EngineCoreOutput(first, [*b"y!z"]))
        assert await core.receive_abort() == [first]
        core.emit_token(second, ord("w"), FinishReason.LENGTH)
    expected = await events_of(alone)
    for event in expected:
        event.request_id = "shared"
    got = (await session.rest()).events
    joined = [pb.GenerateStreamResponse(request_id="shared", started=expected[0].started)]
    assert got[0] == joined[0]
    for index, text in enumerate(("néy", "xw")):
        for events in (expected, got):
            assert "".join(e.delta.text for e in events if e.HasField("delta") and e.delta.index == index) == text
        finished = [
            [e.finished for e in es if e.HasField("finished") and e.finished.index == index] for es in (expected, got)
        ]
        assert finished[0] == finished[1]


async def test_errors_are_of_one_request(session: Session, core: FakeCore, gateway: GatewayServer) -> None:
    """What is wrong with a request is told with all details, and neither the stream nor another request ends."""
    await session.generate("good")
    good = (await core.receive_add()).request_id
    await session.generate("bad", sampling_params={"top_p": 7})
    name, error = await session.receive_error()
    assert (name, error.code, error.fields) == ("bad", grpc.StatusCode.INVALID_ARGUMENT, ["sampling_params.top_p"])
    await session.generate("other", model="nobody's")
    name, error = await session.receive_error()
    assert (name, error.code, error.reason) == ("other", grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")
    await session.generate("good")
    name, error = await session.receive_error()
    assert (name, error.code, error.reason) == ("good", grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_IN_USE")
    await session.generate("")
    name, error = await session.receive_error()
    assert (name, error.code, error.fields) == ("", grpc.StatusCode.INVALID_ARGUMENT, ["generate.request_id"])
    await session.generate("x" * 257)
    name, error = await session.receive_error()
    assert (name, error.code, error.fields) == ("", grpc.StatusCode.INVALID_ARGUMENT, ["request_id"])
    await session.send(pb.MultiplexedRequest())
    name, error = await session.receive_error()
    assert (name, error.code, error.fields) == ("", grpc.StatusCode.INVALID_ARGUMENT, ["command"])
    await session.generate("many", sampling_params={"n": 1000})
    name, error = await session.receive_error()
    assert (name, error.reason, error.retry_after_s is not None) == ("many", "QUEUE_FULL", True)
    core.emit_token(good, 65, FinishReason.LENGTH)
    rest = await session.rest()
    assert (texts(rest), len(rest.errors)) == ({"good": "A"}, 0)
    await until_idle(gateway)


async def test_id_is_free_after_its_request_ended(session: Session, core: FakeCore) -> None:
    """It may be used again as soon as the client knows."""
    for _ in range(3):
        await session.generate("same")
        core.emit_token((await core.receive_add()).request_id, 65, FinishReason.LENGTH)
        assert ends(await session.receive()) == {"same": pb.FINISH_REASON_LENGTH}


async def test_id_of_a_live_request_elsewhere(
    session: Session, inference: InferenceServiceStub, core: FakeCore
) -> None:
    """It is taken, whoever it is that has it."""
    stream = inference.GenerateStream(pb.GenerateRequest(request_id="same", text="hi"))
    await core.receive_add()
    await session.generate("same")
    assert (await session.receive_error())[1].reason == "REQUEST_ID_IN_USE"
    await session.abort("same")  # not this stream's to abort
    await session.generate("after")
    assert (await core.receive())[0] is RequestType.ADD
    stream.cancel()


async def test_abort_ends_the_named_ones(session: Session, core: FakeCore) -> None:
    """As aborted, here and in the core; others go on, and unknown ids are ignored."""
    for name in ("a", "b"):
        await session.generate(name)
    first, second = [(await core.receive_add()).request_id for _ in range(2)]
    core.emit_token(first, 65)
    await session.receive()
    await session.abort("a", "nobody", "a")
    assert await core.receive_abort() == [first]
    aborted = await session.receive()
    assert ends(aborted) == {"a": pb.FINISH_REASON_ABORT}
    await session.abort("a")
    core.emit_token(second, 66, FinishReason.LENGTH)
    assert texts(await session.rest()) == {"b": "B"}


async def test_cancelling_aborts_all(session: Session, core: FakeCore, gateway: GatewayServer) -> None:
    """The core is told of each."""
    for name in ("a", "b", "c"):
        await session.generate(name)
    ids = {(await core.receive_add()).request_id for _ in range(3)}
    session.call.cancel()
    assert {request_id for _ in range(3) for request_id in await core.receive_abort()} == ids
    await until_idle(gateway)


async def test_death_of_the_core(session: Session, core: FakeCore, gateway: GatewayServer) -> None:
    """Each request ends UNAVAILABLE with RetryInfo, after what it had; the stream goes on, and new ones are told."""
    for name in ("a", "b"):
        await session.generate(name)
    first, _ = [(await core.receive_add()).request_id for _ in range(2)]
    lost = asyncio.ensure_future(gateway.until_core_lost())
    core.emit_token(first, 65)
    core.report_death()
    await asyncio.wait_for(lost, 20)
    await session.generate("c")
    rest = await session.rest()
    assert texts(rest) == {"a": "A"}
    errors = {error.request_id: of_entry(error.status) for error in rest.errors}
    assert {(e.code, e.reason) for e in errors.values()} == {(grpc.StatusCode.UNAVAILABLE, "CORE_LOST")}
    assert all(1 <= (e.retry_after_s or 0) <= 2 for e in errors.values())
    assert sorted(errors) == ["a", "b", "c"]


async def test_drain_lets_the_running_finish(session: Session, core: FakeCore, gateway: GatewayServer) -> None:
    """New requests are refused one by one with UNAVAILABLE; those that run end as they would."""
    await session.generate("a")
    request_id = (await core.receive_add()).request_id
    drained = asyncio.ensure_future(gateway.drain())
    await asyncio.sleep(0)
    await session.generate("late")
    name, error = await session.receive_error()
    assert (name, error.code, error.reason) == ("late", grpc.StatusCode.UNAVAILABLE, "DRAINING")
    core.emit_token(request_id, 65, FinishReason.LENGTH)
    assert texts(await session.receive()) == {"a": "A"}
    await drained


async def test_long_prompt_is_read_off_the_loop(session: Session, core: FakeCore) -> None:
    """It comes to the core as any other, or is refused as any other; another request need not wait for it."""
    tail = {"truncate_prompt_tokens": 5}
    await session.generate("long", "long " * 5000, sampling_params=tail)
    assert (await core.receive_add()).prompt_token_ids == [*b"long "]
    await session.generate("too long", "long " * 5000)
    name, error = await session.receive_error()
    assert (name, error.fields) == ("too long", ["text"])


async def test_undecodable_message_ends_the_stream(channel: grpc.aio.Channel, gateway: GatewayServer) -> None:
    """Whose it is nobody knows: INVALID_ARGUMENT, and what ran is aborted."""
    call = channel.stream_stream("/sluicegate.v1.InferenceService/GenerateMultiplexed")()
    request = pb.MultiplexedRequest(generate=pb.GenerateRequest(request_id="a", text="hi"))
    await call.write(request.SerializeToString())
    await call.write(b"\xff")
    error = await error_of(call.read())
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "UNDECODABLE_REQUEST")
    await until_idle(gateway)


async def test_slow_reader_costs_one_slot_a_request(
    gateway: GatewayServer, core: FakeCore, control: ControlServiceStub
) -> None:
    """While the client does not read, what comes is merged: every token in a handful of messages."""
    window = [("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0)]
    num_tokens, names = 3000, ["a", "b", "c"]
    async with (
        grpc.aio.insecure_channel(gateway.grpc_addresses[0], options=window) as channel,
        Session(InferenceServiceStub(channel)) as session,
    ):
        options = {"output_options": {"token_ids": True, "text": False}, "sampling_params": {"ignore_eos": True}}
        for name in names:
            await session.generate(name, **options)
        ids = [(await core.receive_add()).request_id for _ in names]
        for position in range(num_tokens):
            finish = FinishReason.LENGTH if position == num_tokens - 1 else None
            core.emit(*(EngineCoreOutput(i, [position % 256], finish_reason=finish) for i in ids))
        async with asyncio.timeout(30):
            while (await control.GetLoad(GetLoadRequest())).load.num_output_tokens < num_tokens * len(names):
                pass
        await session.call.done_writing()
        responses = await session.all_of_rest()
    assert len(responses) < 20
    for name in names:
        token_ids = [t for r in responses for e in r.events if e.request_id == name for t in e.delta.token_ids]
        assert token_ids == [position % 256 for position in range(num_tokens)]


async def test_session_of_the_python_client(gateway: GatewayServer, core: FakeCore) -> None:
    """Two requests of one session, one of them left early: each has its text, and the core is told."""
    async with AsyncClient(gateway.grpc_addresses[0]) as client, client.multiplexed() as session:
        kept, left = session.stream("hi", n=1), session.stream("hi", max_tokens=100)
        ids = [(await core.receive_add()).request_id for _ in range(2)]
        core.emit(*(EngineCoreOutput(request_id, [65]) for request_id in ids))
        async with left:
            assert (await anext(left)).text == "A"
        assert await core.receive_abort() == [ids[1]]
        core.emit_token(ids[0], 66, FinishReason.LENGTH)
        assert "".join([delta.text async for delta in kept]) == "AB"
        assert kept.usage is not None
        assert kept.usage.num_output_tokens == 2


class StubIntake(Intake):
    """Reads no request before it is told to, and puts a fixed one of its name to the core."""

    def __init__(self, gateway: GatewayServer) -> None:
        self._generator = gateway.generator
        self.may_read = asyncio.Event()

    def read_if_short(self, request: pb.GenerateRequest) -> GenerationRequest | None:
        return self._request(request.request_id) if request.text == "short" else None

    async def read(self, request: pb.GenerateRequest) -> GenerationRequest:
        await self.may_read.wait()
        return self._request(request.request_id)

    def open(
        self, request: GenerationRequest, on_arrival: Callable[[bool], None]
    ) -> AbstractContextManager[Run[Event]]:
        return self._generator.open(request, on_arrival)

    def _request(self, request_id: str) -> GenerationRequest:
        choices = OutputChoices(token_ids=True)
        return GenerationRequest(request_id, [1, 2], SamplingParams(max_tokens=9), output=choices)


class Commands:
    """What a client sends, as it is put in; ``end`` is its last."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[pb.MultiplexedRequest | None] = asyncio.Queue()

    def generate(self, request_id: str, text: str = "short") -> None:
        self._queue.put_nowait(pb.MultiplexedRequest(generate={"request_id": request_id, "text": text}))

    def abort(self, *request_ids: str) -> None:
        self._queue.put_nowait(pb.MultiplexedRequest(abort={"request_ids": request_ids}))

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[pb.MultiplexedRequest]:
        while (command := await self._queue.get()) is not None:
            yield command


async def next_of(responses: AsyncIterator[bytes]) -> pb.MultiplexedResponse:
    async with asyncio.timeout(20):
        return pb.MultiplexedResponse.FromString(await anext(responses))


async def test_aborted_while_it_is_read(gateway: GatewayServer, core: FakeCore) -> None:
    """It never comes to the core, and is told to have failed; its id is free at once."""
    intake, commands = StubIntake(gateway), Commands()
    responses = MultiplexedSession(intake).responses(aiter(commands))
    commands.generate("a", "long")
    commands.generate("a", "long")
    commands.abort("a")
    commands.generate("a")
    response = await next_of(responses)
    assert [(e.request_id, of_entry(e.status).reason) for e in response.errors] == [
        ("a", "REQUEST_ID_IN_USE"),
        ("a", "ABORTED"),
    ]
    core.emit_token((await core.receive_add()).request_id, 65, FinishReason.LENGTH)
    commands.end()
    assert ends(await next_of(responses)) == {"a": pb.FINISH_REASON_LENGTH}
    assert [response async for response in responses] == []
    await until_idle(gateway)


async def test_ends_after_what_is_being_read(gateway: GatewayServer, core: FakeCore) -> None:
    """A client that has said its last gets the answer to a prompt that is still being read."""
    intake, commands = StubIntake(gateway), Commands()
    responses = MultiplexedSession(intake).responses(aiter(commands))
    commands.generate("a", "long")
    commands.end()
    answer = asyncio.ensure_future(next_of(responses))
    intake.may_read.set()
    core.emit_token((await core.receive_add()).request_id, 65, FinishReason.LENGTH)
    assert ends(await answer) == {"a": pb.FINISH_REASON_LENGTH}
    assert [response async for response in responses] == []


async def test_large_responses_are_divided(gateway: GatewayServer, core: FakeCore) -> None:
    """Between requests, once they have the size; together they are everything."""
    commands = Commands()
    responses = MultiplexedSession(StubIntake(gateway), max_response_bytes=1).responses(aiter(commands))
    for name in ("a", "b", "c"):
        commands.generate(name)
    commands.end()
    first = asyncio.ensure_future(next_of(responses))
    ids = [(await core.receive_add()).request_id for _ in range(3)]
    core.emit(*(EngineCoreOutput(request_id, [65], finish_reason=FinishReason.LENGTH) for request_id in ids))
    got = [await first] + [pb.MultiplexedResponse.FromString(response) async for response in responses]
    assert [ends(response) for response in got] == [{name: pb.FINISH_REASON_LENGTH} for name in ("a", "b", "c")]


async def test_what_has_ended_is_not_kept(session: Session, core: FakeCore, gateway: GatewayServer) -> None:
    """Not in a circle either: large lists are few objects, for which circles are hardly ever looked for."""
    gc.disable()
    try:
        await session.generate("kept by nobody")
        core.emit_token((await core.receive_add()).request_id, 65, FinishReason.LENGTH)
        await session.rest()
        await until_idle(gateway)
        requests = [each for each in gc.get_objects() if isinstance(each, GenerationRequest)]
        assert "kept by nobody" not in [request.request_id for request in requests]
        calls = [each for each in gc.get_objects() if isinstance(each, LiveCall)]
        assert "kept by nobody" not in [call.name for call in calls if call.requests]
    finally:
        gc.enable()


async def test_errors_that_nobody_reads_are_bounded(gateway: GatewayServer) -> None:
    """With many to tell, no further request is read until they are told."""
    commands = Commands()
    session = MultiplexedSession(StubIntake(gateway))
    responses = session.responses(aiter(commands))
    for _ in range(1000):
        commands.generate("")
    commands.end()
    sizes = [len(pb.MultiplexedResponse.FromString(response).errors) async for response in responses]
    assert (sum(sizes), max(sizes)) == (1000, 256)


async def test_flushes_are_paced(gateway: GatewayServer, core: FakeCore) -> None:
    """With an interval that never ends: the first token at once, then nothing until the end brings the rest."""
    commands = Commands()
    responses = MultiplexedSession(StubIntake(gateway), min_flush_interval_s=1000).responses(aiter(commands))
    commands.generate("a")
    commands.end()
    first = asyncio.ensure_future(next_of(responses))
    request_id = (await core.receive_add()).request_id
    core.emit_token(request_id, 65)
    assert texts(await first) == {"a": "A"}
    second = asyncio.ensure_future(next_of(responses))
    for byte in b"BCD":
        core.emit_token(request_id, byte)
    core.emit_token(request_id, 69, FinishReason.LENGTH)
    assert texts(await second) == {"a": "BCDE"}
