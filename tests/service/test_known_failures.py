"""What broke other servers of this kind, by its number in KNOWN_FAILURES: what must not break the gateway.

Rows that have their tests elsewhere are in docs/known-failures.md with these.
"""

import asyncio
import math
import sys
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from smg_grpc_proto.generated import vllm_engine_pb2
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from core.wire.messages import EngineCoreOutput, FinishReason
from service.server import GatewayServer
from service.translate import MAX_ABORTED_IDS
from sluicegate.v1 import control_service_pb2
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.byte_model import VOCAB_SIZE
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import READY, FakeCore
from tests.service.servicers.calls import events_of, until_idle

_NUMBERS = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
_CLIENT_THAT_READS_FOR_EVER = """
import sys, grpc
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
for event in InferenceServiceStub(grpc.insecure_channel(sys.argv[1])).GenerateStream(pb.GenerateRequest(text="hi")):
    print("event", flush=True)
"""


async def test_3_health_is_answered_while_a_long_text_is_read(
    inference: InferenceServiceStub, core: FakeCore, channel: grpc.aio.Channel
) -> None:
    """With eight streams open, and before a text that takes a second or so has become tokens."""
    streams = [inference.GenerateStream(pb.GenerateRequest(text="hi")) for _ in range(8)]
    for _ in streams:
        await core.receive_add()
    reading = asyncio.ensure_future(inference.Tokenize(pb.TokenizeRequest(text="long words " * 90_000)))
    health = HealthStub(channel)
    answers = [(await health.Check(HealthCheckRequest())).status for _ in range(5)]
    assert not reading.done()
    assert answers == [HealthCheckResponse.SERVING] * 5
    assert len((await reading).token_ids) == 990_000
    for stream in streams:
        stream.cancel()


async def test_3_health_is_answered_beside_a_thousand_streams(
    inference: InferenceServiceStub, core: FakeCore, channel: grpc.aio.Channel, gateway: GatewayServer
) -> None:
    """All of them open, and each with a token to deliver."""
    streams = [inference.GenerateStream(pb.GenerateRequest(text="hi")) for _ in range(1000)]
    ids = [(await core.receive_add()).request_id for _ in streams]
    health = HealthStub(channel)
    for token_id in b"abc":
        core.emit(*(EngineCoreOutput(request_id, [token_id]) for request_id in ids))
        assert (await health.Check(HealthCheckRequest())).status == HealthCheckResponse.SERVING
    core.emit(*(EngineCoreOutput(request_id, [65], finish_reason=FinishReason.LENGTH) for request_id in ids))
    for stream in streams:
        assert "".join(event.delta.text for event in await events_of(stream)) == "abcA"
    await until_idle(gateway)


async def test_18_client_that_is_killed(core: FakeCore, gateway: GatewayServer) -> None:
    """Its request is aborted in the core as soon as its connection is gone."""
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CLIENT_THAT_READS_FOR_EVER, gateway.grpc_addresses[0], stdout=asyncio.subprocess.PIPE
    )
    assert client.stdout is not None
    async with asyncio.timeout(60):
        request_id = None
        while request_id is None:
            try:
                request_id = (await core.receive_add()).request_id
            except TimeoutError:
                continue
        core.emit_token(request_id, 65)
        await client.stdout.readline()
    client.kill()
    assert await core.receive_abort() == [request_id]
    await client.wait()
    await until_idle(gateway)


async def test_21_aborts_of_what_is_not_there(
    inference: InferenceServiceStub, control: ControlServiceStub, core: FakeCore, gateway: GatewayServer
) -> None:
    """Of an unknown request, of one that has ended, twice, and with the last token on its way: others go on."""

    async def abort(*request_ids: str) -> int:
        response = await control.Abort(control_service_pb2.AbortRequest(request_ids=request_ids))
        return response.num_aborted

    other = inference.GenerateStream(pb.GenerateRequest(request_id="other", text="hi"))
    other_id = (await core.receive_add()).request_id
    ended = inference.Generate(pb.GenerateRequest(request_id="ended", text="hi"))
    core.emit_token((await core.receive_add()).request_id, 65, FinishReason.LENGTH)
    await ended
    assert await abort("unknown", "ended") == 0
    raced = inference.GenerateStream(pb.GenerateRequest(request_id="raced", text="hi"))
    raced_id = (await core.receive_add()).request_id
    assert await abort("raced", "raced") == 1
    core.emit_token(raced_id, 66, FinishReason.LENGTH)
    assert await abort("raced") == 0
    assert (await events_of(raced))[-1].finished.finish_reason == pb.FINISH_REASON_ABORT
    core.emit_token(other_id, 65, FinishReason.LENGTH)
    assert (await events_of(other))[-1].finished.finish_reason == pb.FINISH_REASON_LENGTH
    await until_idle(gateway)


async def test_21_endless_list_of_ids(channel: grpc.aio.Channel, control: ControlServiceStub) -> None:
    """Is refused, whatever the API, before anybody looks for them."""
    request_ids = ["x"] * (MAX_ABORTED_IDS + 1)
    calls = [
        control.Abort(control_service_pb2.AbortRequest(request_ids=request_ids)),
        VllmEngineStub(channel).Abort(vllm_engine_pb2.AbortRequest(request_ids=request_ids)),
    ]
    for call in calls:
        error = await error_of(call)
        assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["request_ids"])
    stream = InferenceServiceStub(channel).GenerateMultiplexed()
    await stream.write(pb.MultiplexedRequest(abort={"request_ids": request_ids}))
    (entry,) = (await stream.read()).errors
    assert entry.status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    stream.cancel()


def _params(**fields: Any) -> dict[str, Any]:
    return {"text": "hi", "sampling_params": fields}


def _tokens(*ids: int) -> dict[str, Any]:
    return {"token_ids": {"ids": ids}}


_REFUSED = [
    *((24, _tokens(token_id), "token_ids.ids") for token_id in (VOCAB_SIZE, 2**31 - 1, 2**32 - 1)),
    (25, _params(stop_token_ids=[VOCAB_SIZE + 5], min_tokens=5), "sampling_params.stop_token_ids"),
    (26, _params(logit_bias={VOCAB_SIZE: 5.0}), "sampling_params.logit_bias"),
    (26, _params(logit_bias={2**32 - 1: 5.0}), "sampling_params.logit_bias"),
    (28, _params(n=1_000_000), "sampling_params.n"),
    (29, {"text": ""}, "text"),
    (29, _tokens(), "token_ids.ids"),
    (30, _tokens(*[65] * READY.max_model_len), "token_ids"),
    (30, _tokens(*[65] * (READY.max_model_len + 1)), "token_ids"),
    *(
        (33, _params(**{name: value}), f"sampling_params.{name}")
        for name in _NUMBERS
        for value in (math.nan, math.inf, -math.inf)
    ),
    (35, _params(n=0), "sampling_params.n"),
    (36, _params(json_object=False), "sampling_params.json_object"),
    (36, _params(json_schema=""), "sampling_params.json_schema"),
    (36, _params(json_schema="{"), "sampling_params.json_schema"),
]


@pytest.mark.parametrize(("row", "fields", "named"), _REFUSED, ids=[f"row {row}-{named}" for row, _, named in _REFUSED])
async def test_what_is_refused(
    inference: InferenceServiceStub, core: FakeCore, row: int, fields: dict[str, Any], named: str
) -> None:
    """INVALID_ARGUMENT by the field, at once; the core hears nothing of it, and the stream beside it goes on."""
    neighbour = inference.GenerateStream(pb.GenerateRequest(text="hi"))
    request_id = (await core.receive_add()).request_id
    error = await error_of(inference.Generate(pb.GenerateRequest(**fields)))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT, row
    assert error.fields == [named]
    core.emit_token(request_id, 65, FinishReason.LENGTH)
    assert [event.delta.text for event in await events_of(neighbour) if event.HasField("delta")] == ["A"]
    following = inference.Generate(pb.GenerateRequest(text="next"))
    request = await core.receive_add()
    assert bytes(request.prompt_token_ids or ()) == b"next"
    core.emit_token(request.request_id, 65, FinishReason.LENGTH)
    await following


_TAKEN = [
    (24, _tokens(VOCAB_SIZE - 1), {}),
    (30, _tokens(*[65] * (READY.max_model_len - 1)), {"max_tokens": 1}),
    (35, _params(temperature=0), {"temperature": 0.0}),
    (35, _params(), {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0, "n": 1}),
    (35, _params(top_k=0), {"top_k": 0}),
    (35, _params(top_k=-1), {"top_k": 0}),
]


@pytest.mark.parametrize(("row", "fields", "expected"), _TAKEN, ids=[f"row {row}" for row, _, _ in _TAKEN])
async def test_what_is_taken(
    inference: InferenceServiceStub, core: FakeCore, row: int, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    """What is just within the bounds, and what unset and zero mean to the core."""
    call = inference.Generate(pb.GenerateRequest(**fields))
    request = await core.receive_add()
    assert {name: getattr(request.sampling_params, name) for name in expected} == expected, row
    core.emit(EngineCoreOutput(request.request_id, [65], finish_reason=FinishReason.LENGTH))
    assert (await call).outputs[0].finish_reason == pb.FINISH_REASON_LENGTH
