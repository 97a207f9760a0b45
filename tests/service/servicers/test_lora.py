"""LoRA adapters as operators load them and clients name them, with a scripted core."""

import asyncio
from dataclasses import replace

import grpc
import msgspec
import pytest

from core.wire.messages import EngineCoreEvent, EngineCoreOutput, EngineCoreRequest, EventType, FinishReason
from service.config import GatewayConfig, ListenConfig
from service.server import GatewayServer
from sluicegate.v1 import control_service_pb2 as pb
from sluicegate.v1 import inference_service_pb2
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import READY, FakeCore
from tests.service.metrics.scrape import scrape_async

READY_FOR_TWO = msgspec.structs.replace(READY, max_loras=2)
pytestmark = pytest.mark.parametrize("core", [READY_FOR_TWO], indirect=True)


@pytest.fixture
def gateway_config(gateway_config: GatewayConfig) -> GatewayConfig:
    """With metrics."""
    return replace(gateway_config, listen=ListenConfig(("127.0.0.1:0",), "127.0.0.1:0", "127.0.0.1:0"))


async def load(control: ControlServiceStub, core: FakeCore, name: str) -> None:
    async def call() -> None:
        await control.LoadLora(pb.LoadLoraRequest(name=name, path=f"/{name}"))

    loading = asyncio.ensure_future(call())
    core.answer(await core.receive_call(), result=True)
    await loading


async def sent(inference: InferenceServiceStub, core: FakeCore, **fields: str) -> EngineCoreRequest:
    """What the core gets for a request with ``fields``, which ends at once."""
    call = inference.Generate(inference_service_pb2.GenerateRequest(text="hi", **fields))
    request = await core.receive_add()
    core.emit_token(request.request_id, 65, FinishReason.LENGTH)
    await call
    return request


async def test_operators_see_what_is_loaded(control: ControlServiceStub, core: FakeCore) -> None:
    """In ListLoras, after the model in ListModels, and in GetServerInfo."""
    for name in ("b", "a"):
        await load(control, core, name)
    loras = (await control.ListLoras(pb.ListLorasRequest())).loras
    assert [(lora.name, lora.path) for lora in loras] == [("a", "/a"), ("b", "/b")]
    models = (await control.ListModels(pb.ListModelsRequest())).models
    assert [(card.name, card.base_model) for card in models] == [("bytes", ""), ("a", "bytes"), ("b", "bytes")]
    info = await control.GetServerInfo(pb.GetServerInfoRequest())
    assert (info.max_loras, list(info.lora_names)) == (2, ["a", "b"])


async def test_requests_name_an_adapter_or_have_it_for_a_model(
    control: ControlServiceStub, inference: InferenceServiceStub, core: FakeCore
) -> None:
    """The core gets its name, its id and its path."""
    await load(control, core, "a")
    for fields in ({"lora_name": "a"}, {"model": "a"}, {"model": "bytes", "lora_name": "a"}):
        lora = (await sent(inference, core, **fields)).lora_request
        assert lora is not None
        assert (lora.lora_name, lora.lora_int_id, lora.lora_path) == ("a", 1, "/a")
    assert (await sent(inference, core, model="bytes")).lora_request is None
    tokens = await inference.Tokenize(inference_service_pb2.TokenizeRequest(model="a", text="hi"))
    assert len(tokens.token_ids) == 2


async def test_an_unknown_adapter_is_not_found(
    control: ControlServiceStub, inference: InferenceServiceStub, core: FakeCore
) -> None:
    """Nor one that was unloaded; two names that do not agree are an error of the request."""
    await load(control, core, "a")
    await load(control, core, "b")
    unloading = asyncio.ensure_future(_unload(control, "a"))
    asked = await core.receive_call()
    for fields, reason in (
        ({"lora_name": "a"}, "LORA_NOT_FOUND"),
        ({"lora_name": "x"}, "LORA_NOT_FOUND"),
        ({"model": "a"}, "MODEL_NOT_FOUND"),
    ):
        error = await error_of(inference.Generate(inference_service_pb2.GenerateRequest(text="hi", **fields)))
        assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, reason)
    core.answer(asked, result=True)
    await unloading
    assert (await error_of(control.UnloadLora(pb.UnloadLoraRequest(name="a")))).code is grpc.StatusCode.NOT_FOUND
    await load(control, core, "a")
    request = inference_service_pb2.GenerateRequest(text="hi", model="a", lora_name="b")
    error = await error_of(inference.Generate(request))
    assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["lora_name"])


async def test_what_the_core_says_of_a_broken_adapter_is_passed_on(control: ControlServiceStub, core: FakeCore) -> None:
    """FAILED_PRECONDITION; a taken name is ALREADY_EXISTS."""
    failing = asyncio.ensure_future(error_of(control.LoadLora(pb.LoadLoraRequest(name="a", path="/a"))))
    core.answer(await core.receive_call(), failure="/a/adapter_config.json: r is missing")
    core.answer(await core.receive_call(), result=False)
    error = await failing
    assert (error.code, error.message) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "/a/adapter_config.json: r is missing",
    )
    await load(control, core, "a")
    error = await error_of(control.LoadLora(pb.LoadLoraRequest(name="a", path="/b")))
    assert (error.code, error.reason) == (grpc.StatusCode.ALREADY_EXISTS, "LORA_NAME_TAKEN")


async def test_adapters_of_live_requests_are_a_metric(
    control: ControlServiceStub, inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer
) -> None:
    """As vLLM has it: the names are labels, of those that run and of those that wait."""
    for name in ("a", "b"):
        await load(control, core, name)
    streams = []
    for name in ("a", "b"):
        request = inference_service_pb2.GenerateRequest(text="hi", lora_name=name)
        streams.append(inference.GenerateStream(request))
        request_id = (await core.receive_add()).request_id
        if name == "a":
            core.emit(EngineCoreOutput(request_id, [65], events=[EngineCoreEvent(EventType.SCHEDULED, 1.0)]))
    await streams[0].read()
    answer = await scrape_async(gateway.metrics_address)
    labels = 'max_lora="2",running_lora_adapters="a",waiting_lora_adapters="b"'
    assert f"vllm:lora_requests_info{{{labels}}}" in answer.text
    for stream in streams:
        stream.cancel()


async def _unload(control: ControlServiceStub, name: str) -> None:
    await control.UnloadLora(pb.UnloadLoraRequest(name=name))
