"""Deadlines that pass in each phase of a call: the core is told, nothing is left; what is hopeless is not begun."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from smg_grpc_proto.generated import vllm_engine_pb2
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from core.wire.messages import EngineCoreOutput, FinishReason
from core.wire.stats import SchedulerStats
from service.admission.admission import Admission, AdmissionLimits
from service.cores.adapters import Adapters
from service.cores.engines import Engines
from service.engine_client import EngineClient
from service.gate import Backend, Gate
from service.generator import Generator
from service.listener import Listener
from service.models import ModelFiles
from service.served_model import ModelText
from service.server import GatewayServer
from service.servicers.health import Health
from service.servicers.inference import InferenceServicer
from service.text.text_threads import NUM_THREADS, TextThreads
from sluicegate.third_party.inference.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub, add_InferenceServiceServicer_to_server
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import READY, FakeCore
from tests.service.servicers.calls import Stream, until_idle
from tests.service.servicers.kserve.requests import infer_request

TIMEOUT_S = 2


async def until_late(stream: Stream) -> None:
    """The stream ends for its deadline."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        async for _ in stream:
            pass
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("num_tokens", [0, 3], ids=["waiting", "running"])
async def test_stream(inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer, num_tokens: int) -> None:
    """Before and after its first token, every sequence is aborted in the core."""
    request = pb.GenerateRequest(text="hi", sampling_params={"n": 2})
    stream = inference.GenerateStream(request, timeout=TIMEOUT_S)
    ids = [(await core.receive_add()).request_id for _ in range(2)]
    for _ in range(num_tokens):
        core.emit(*(EngineCoreOutput(request_id, [65]) for request_id in ids))
    await until_late(stream)
    assert sorted(await core.receive_abort()) == sorted(ids)
    await until_idle(gateway)


@pytest.mark.parametrize("num_tokens", [0, 3], ids=["waiting", "running"])
async def test_stream_of_routers(
    channel: grpc.aio.Channel, core: FakeCore, gateway: GatewayServer, num_tokens: int
) -> None:
    """VllmEngine's Generate, likewise."""
    prompt = vllm_engine_pb2.TokenizedInput(input_ids=[104, 105])
    request = vllm_engine_pb2.GenerateRequest(request_id="r", tokenized=prompt, stream=True)
    stream = VllmEngineStub(channel).Generate(request, timeout=TIMEOUT_S)
    request_id = (await core.receive_add()).request_id
    for _ in range(num_tokens):
        core.emit_token(request_id, 65)
    await until_late(stream)
    assert await core.receive_abort() == [request_id]
    await until_idle(gateway)


async def test_multiplexed_stream(inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer) -> None:
    """The stream's deadline is that of all its requests, whichever wait and whichever run."""
    stream = inference.GenerateMultiplexed(timeout=TIMEOUT_S)
    for name in ("a", "b"):
        await stream.write(pb.MultiplexedRequest(generate=pb.GenerateRequest(request_id=name, text="hi")))
    ids = [(await core.receive_add()).request_id for _ in range(2)]
    core.emit_token(ids[0], 65)
    await until_late(stream)
    aborted = [*await core.receive_abort(), *await core.receive_abort()]
    assert sorted(aborted) == sorted(ids)
    await until_idle(gateway)


async def test_stream_of_triton(channel: grpc.aio.Channel, core: FakeCore, gateway: GatewayServer) -> None:
    """ModelStreamInfer, likewise."""
    stream = GRPCInferenceServiceStub(channel).ModelStreamInfer(timeout=TIMEOUT_S)
    await stream.write(infer_request(stream=True))
    request_id = (await core.receive_add()).request_id
    core.emit_token(request_id, 65)
    await until_late(stream)
    assert await core.receive_abort() == [request_id]
    await until_idle(gateway)


async def test_embedding(inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer) -> None:
    """While its one output is awaited."""
    call = inference.Embed(pb.EmbedRequest(text="hi"), timeout=TIMEOUT_S)
    core.answer(await core.receive_call(), ["embed"])
    request_id = (await core.receive_add()).request_id
    assert (await error_of(call)).code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert await core.receive_abort() == [request_id]
    await until_idle(gateway)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What the threads for texts wait for; set at the latest when the test is over."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
async def busy_threads(released: threading.Event) -> AsyncIterator[TextThreads]:
    """With a text in each thread."""
    threads = TextThreads(100)
    texts = [asyncio.ensure_future(threads.run(1, released.wait)) for _ in range(NUM_THREADS)]
    await asyncio.sleep(0)
    yield threads
    released.set()
    await asyncio.gather(*texts)


@pytest.fixture
async def reading(
    byte_model: ModelFiles, busy_threads: TextThreads, core: FakeCore, tmp_path: Path
) -> AsyncIterator[InferenceServiceStub]:
    """A service whose threads for texts are busy."""
    engines = Engines(f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out")
    core.connect(engines.addresses)
    info = await asyncio.wait_for(engines.ready, 30)
    model = ModelText.load(byte_model).served_by(READY)
    client, gate = EngineClient(engines), Gate(Health([]))
    generator = Generator(client, model.tokenizer, Admission(AdmissionLimits(100, 1000, 100_000)))
    gate.open(Backend(model, client, info, generator, Adapters(client, model.name)))
    listener = Listener()
    add_InferenceServiceServicer_to_server(InferenceServicer(gate, busy_threads), listener.server)
    listener.bind("127.0.0.1:0")
    await listener.server.start()
    async with grpc.aio.insecure_channel(listener.addresses[0]) as channel:
        yield InferenceServiceStub(channel)
    await listener.stop(0)
    engines.close()


@pytest.mark.parametrize("method", ["Generate", "GenerateStream", "Embed", "Tokenize"])
async def test_long_text_that_waits_for_a_thread(
    reading: InferenceServiceStub, core: FakeCore, released: threading.Event, method: str
) -> None:
    """Is forgotten: when the threads are free, the next request is the first that the core gets."""
    text = "long " * 1000
    given = {"Embed": pb.EmbedRequest(text=text), "Tokenize": pb.TokenizeRequest(text=text)}
    call = getattr(reading, method)(given.get(method, pb.GenerateRequest(text=text[:1000] * 5)), timeout=0.3)
    error = await error_of(call.read() if method == "GenerateStream" else call)
    assert error.code is grpc.StatusCode.DEADLINE_EXCEEDED
    released.set()
    following = reading.Generate(pb.GenerateRequest(text="hi" * 400))
    request = await core.receive_add()
    assert bytes(request.prompt_token_ids or ()) == b"hi" * 400
    core.emit_token(request.request_id, 65, FinishReason.LENGTH)
    await following


async def test_hopeless_deadline_is_refused(
    inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer
) -> None:
    """With ten thousand sequences before it at a core that ends a few a second, a call of a minute is not begun.

    One that has no deadline is; so is one of a second when nothing waits.
    """
    steady = inference.GenerateStream(pb.GenerateRequest(text="steady"))
    await core.receive_add()
    for num_waiting in [0] * 8 + [10_000]:
        call = inference.Generate(pb.GenerateRequest(text="hi"), timeout=60)
        output = EngineCoreOutput((await core.receive_add()).request_id, [65], finish_reason=FinishReason.LENGTH)
        core.emit(output, stats=SchedulerStats(num_waiting_reqs=num_waiting))
        await call
    error = await error_of(inference.Generate(pb.GenerateRequest(text="hi"), timeout=60))
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "DEADLINE_HOPELESS")
    assert error.retry_after_s
    patient = inference.GenerateStream(pb.GenerateRequest(text="hi"))
    await core.receive_add()
    patient.cancel()
    steady.cancel()
    await until_idle(gateway)
