"""Embed over a real channel."""

import asyncio

import grpc
import msgspec
import numpy as np
from smg_grpc_proto.generated import vllm_engine_pb2 as pb
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from core.wire.messages import EngineCoreOutput, FinishReason
from core.wire.pooling_params import PoolingParams
from core.wire.tensor import Tensor
from service.server import GatewayServer
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import FakeCore
from tests.service.servicers.calls import until_idle

REQUEST = pb.EmbedRequest(request_id="e", tokenized=pb.TokenizedInput(input_ids=b"hi", original_text="hi"))


async def test_the_vector(engine: VllmEngineStub, core: FakeCore, gateway: GatewayServer) -> None:
    """With its size, and how many tokens it is of. The core is asked once whether it can."""
    for has_been_asked in (False, True):
        call = engine.Embed(REQUEST)
        if not has_been_asked:
            core.answer(await core.receive_call(), ["embed"])
        request = await core.receive_add()
        assert request.prompt_token_ids == [*b"hi"]
        assert msgspec.convert(request.pooling_params, PoolingParams) == PoolingParams(task="embed")
        vector = Tensor(np.array([0.5, -2, 1], "<f4"))
        core.emit(EngineCoreOutput(request.request_id, [], pooling_output=vector, finish_reason=FinishReason.STOP))
        assert await call == pb.EmbedResponse(embedding=[0.5, -2, 1], prompt_tokens=2, embedding_dim=3)
    await until_idle(gateway)


async def test_without_tokens_it_is_refused(engine: VllmEngineStub) -> None:
    """There is no text field to take instead."""
    error = await error_of(engine.Embed(pb.EmbedRequest(request_id="e")))
    assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["tokenized"])


async def test_a_model_that_generates_does_not_embed(engine: VllmEngineStub, core: FakeCore) -> None:
    """The client's fault, as routers should not try it elsewhere."""
    failing = asyncio.ensure_future(error_of(engine.Embed(REQUEST)))
    core.answer(await core.receive_call(), ["generate"])
    error = await failing
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MODEL_CANNOT_EMBED")


async def test_an_abort_ends_it(engine: VllmEngineStub, core: FakeCore, gateway: GatewayServer) -> None:
    """Before it is put to the core, and after."""
    failing = asyncio.ensure_future(error_of(engine.Embed(REQUEST)))
    question = await core.receive_call()
    await engine.Abort(pb.AbortRequest(request_ids=["e"]))
    core.answer(question, ["embed"])
    assert (await failing).reason == "ABORTED"
    failing = asyncio.ensure_future(error_of(engine.Embed(REQUEST)))
    core_id = (await core.receive_add()).request_id
    await engine.Abort(pb.AbortRequest(request_ids=["e"]))
    assert (await failing).reason == "ABORTED"
    assert await core.receive_abort() == [core_id]
    await until_idle(gateway)
