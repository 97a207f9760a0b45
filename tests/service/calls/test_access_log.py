"""Lines about calls, of a gateway with a scripted core."""

import grpc
import pytest
from google.rpc.error_details_pb2 import RequestInfo
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_status import rpc_status

from core.wire.messages import EngineCoreOutput, FinishReason, PrefillStats
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.calls.lines import Lines
from tests.service.fake_core import FakeCore

GENERATE = "/sluicegate.v1.InferenceService/Generate"


async def test_a_generation(
    inference: InferenceServiceStub, core: FakeCore, lines: Lines, channel: grpc.aio.Channel
) -> None:
    """A line has who, what, how it went, tokens and times, and not a word of the prompt; health checks have none."""
    await HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    answer = inference.Generate(pb.GenerateRequest(request_id="r1", text="a secret", sampling_params={"n": 2}))
    ids = [(await core.receive_add()).request_id for _ in range(2)]
    core.emit(*(EngineCoreOutput(i, [65, 66], prefill_stats=PrefillStats(8, 8)) for i in ids))
    core.emit_token(ids[0], 67, FinishReason.LENGTH)
    core.emit_token(ids[1], 256, FinishReason.STOP)
    await answer
    line = await lines.next_access()
    assert (line["request_id"], line["method"], line["model"]) == ("r1", GENERATE, "bytes")
    fields = line["fields"]
    assert 0 < fields.pop("ttft_s") <= fields.pop("duration_s")
    assert fields.pop("peer").startswith("ipv4:127.0.0.1:")
    assert fields == {"code": "OK", "prompt_tokens": 8, "output_tokens": 6, "finish_reasons": "length,stop"}
    assert not [record for record in lines.records if "secret" in record.getMessage()]


async def test_a_refused_request(inference: InferenceServiceStub, lines: Lines) -> None:
    """What is refused before it reaches a core is logged by the name that the client gave it."""
    with pytest.raises(grpc.aio.AioRpcError):
        await inference.Generate(pb.GenerateRequest(request_id="r2"))
    line = await lines.next_access()
    assert (line["request_id"], line["fields"]["code"]) == ("r2", "INVALID_ARGUMENT")
    assert "prompt_tokens" not in line["fields"]


async def test_a_name_of_the_servers(inference: InferenceServiceStub, core: FakeCore, lines: Lines) -> None:
    """A request without a name has one in the answer, to the core and in the log: the same."""
    answer = inference.Generate(pb.GenerateRequest(text="hi"))
    request = await core.receive_add()
    core.emit_token(request.request_id, 65, FinishReason.LENGTH)
    name = (await answer).request_id
    line = await lines.next_access()
    assert line["request_id"] == name == request.external_req_id


async def test_lines_in_between(inference: InferenceServiceStub, core: FakeCore, lines: Lines) -> None:
    """Whatever is logged on behalf of a request names it, also where two run at once."""
    answers = [inference.Generate(pb.GenerateRequest(request_id=name, text="hi")) for name in ("r3", "r4")]
    ids = [(await core.receive_add()).request_id for _ in answers]
    core.emit(*(EngineCoreOutput(i, [100_000]) for i in ids))
    for answer in answers:
        with pytest.raises(grpc.aio.AioRpcError):
            await answer
    errors = [
        vars(line) for line in lines.records if line.levelname == "ERROR" and line.name == "service.servicers.edge"
    ]
    assert sorted(line["request_id"] for line in errors) == ["r3", "r4"]


async def test_errors_name_the_request(inference: InferenceServiceStub, core: FakeCore, lines: Lines) -> None:
    """A client that let the server choose the id learns it from the error, too, and the log has it."""
    answer = inference.Generate(pb.GenerateRequest(text="hi"))
    core.emit(EngineCoreOutput((await core.receive_add()).request_id, [100_000]))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await answer
    told = RequestInfo()
    status = rpc_status.from_call(raised.value)
    assert [detail.Unpack(told) for detail in status.details].count(True) == 1
    assert told.request_id == (await lines.next_access())["request_id"]


async def test_errors_of_a_stream_of_requests(inference: InferenceServiceStub, core: FakeCore, lines: Lines) -> None:
    """Of several requests that one stream carries, a line is about the one that failed."""
    stream = inference.GenerateMultiplexed()
    await stream.write(pb.MultiplexedRequest(generate={"request_id": "r7", "text": "hi"}))
    core.emit(EngineCoreOutput((await core.receive_add()).request_id, [100_000]))
    await stream.done_writing()
    assert [error.request_id async for response in stream for error in response.errors] == ["r7"]
    errors = [vars(line)["request_id"] for line in lines.records if line.name == "service.servicers.edge"]
    assert errors == ["r7"]


async def test_a_stream_of_requests(inference: InferenceServiceStub, core: FakeCore, lines: Lines) -> None:
    """Each request of a multiplexed stream has a line when it ends, and the stream has one in the end."""
    stream = inference.GenerateMultiplexed()
    for name in ("r5", "r6"):
        await stream.write(pb.MultiplexedRequest(generate={"request_id": name, "text": "hi"}))
    ids = [(await core.receive_add()).request_id for _ in range(2)]
    for core_id in ids:
        core.emit_token(core_id, 65, FinishReason.LENGTH)
        line = await lines.next_access()
        assert core_id.startswith(line["request_id"])
        assert (line["fields"]["output_tokens"], line["fields"]["finish_reasons"]) == (1, "length")
    await stream.done_writing()
    assert [response async for response in stream]
    line = await lines.next_access()
    assert line["fields"]["code"] == "OK"
    assert "output_tokens" not in line["fields"]


async def test_a_method_that_is_not_there(channel: grpc.aio.Channel, lines: Lines) -> None:
    """It counts, but its name, which is the caller's to choose, is not written down."""
    with pytest.raises(grpc.aio.AioRpcError):
        await channel.unary_unary("/no.such/Method")(b"")
    line = await lines.next_access()
    assert line["fields"] == {"code": "UNIMPLEMENTED"}
    assert "no.such" not in str(line)


async def test_trace_headers_reach_the_core(inference: InferenceServiceStub, core: FakeCore) -> None:
    """The caller's trace goes on in the core, whether or not we have spans of our own."""
    headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-00", "tracestate": "vendor=1"}
    answer = inference.Generate(pb.GenerateRequest(text="hi"), metadata=tuple(headers.items()))
    request = await core.receive_add()
    assert request.trace_headers == headers
    core.emit_token(request.request_id, 65, FinishReason.LENGTH)
    await answer
    answer = inference.Generate(pb.GenerateRequest(text="hi"))
    request = await core.receive_add()
    assert request.trace_headers is None
    core.emit_token(request.request_id, 65, FinishReason.LENGTH)
    await answer
