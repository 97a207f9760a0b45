"""Generate: what streams and what does not, and how each sequence ends."""

import asyncio

import grpc
import msgspec
import numpy as np
import pytest
from smg_grpc_proto.generated import vllm_engine_pb2 as pb
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from core.wire.messages import EngineCoreOutput, FinishReason, LogprobsLists, LogprobsTensors, PrefillStats
from core.wire.tensor import Tensor
from service.server import GatewayServer
from tests.service.byte_model import EOS_TOKEN_ID
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import READY, FakeCore
from tests.service.servicers.calls import until_idle
from tests.service.servicers.vllm_engine.calls import asks, messages_of, say, text_of


async def test_chunks_are_deltas_and_complete_is_whole(engine: VllmEngineStub, core: FakeCore) -> None:
    """A stream is chunks with the new tokens, the last one's too, then one complete with all of them."""
    stream = engine.Generate(asks())
    core_id = (await core.receive_add()).request_id
    core.emit(EngineCoreOutput(core_id, [*b"ab"], prefill_stats=PrefillStats(2, 1, 1)))
    core.emit_token(core_id, ord("c"))
    core.emit_token(core_id, EOS_TOKEN_ID, FinishReason.STOP)
    *chunks, complete = await messages_of(stream)
    assert [token_id for chunk in chunks for token_id in chunk.token_ids] == [*b"abc", EOS_TOKEN_ID]
    assert chunks[-1].completion_tokens == 4
    assert all((chunk.prompt_tokens, chunk.cached_tokens, chunk.index) == (2, 1, 0) for chunk in chunks)
    assert complete == pb.GenerateComplete(
        output_ids=[*b"abc", EOS_TOKEN_ID],
        finish_reason="stop",
        prompt_tokens=2,
        completion_tokens=4,
        cached_tokens=1,
    )


async def test_without_stream_each_sequence_is_one_complete(engine: VllmEngineStub, core: FakeCore) -> None:
    """They come in order, whichever ends first."""
    call = engine.Generate(asks(stream=False, n=2, temperature=1))
    first, second = (await core.receive_add()).request_id, (await core.receive_add()).request_id
    say(core, second, b"two")
    say(core, first, b"one!")
    messages = await messages_of(call)
    assert [(bytes(message.output_ids), message.index) for message in messages] == [(b"one!", 0), (b"two", 1)]
    assert [(message.finish_reason, message.completion_tokens) for message in messages] == [
        ("length", 4),
        ("length", 3),
    ]
    assert all(message.prompt_tokens == 2 for message in messages)


async def test_streamed_sequences_interleave(engine: VllmEngineStub, core: FakeCore) -> None:
    """Each has its own complete as soon as it ends, while the other goes on."""
    stream = engine.Generate(asks(n=2, temperature=1))
    first, second = (await core.receive_add()).request_id, (await core.receive_add()).request_id
    say(core, second, b"two")
    messages = []
    async for response in stream:
        messages.append(response)
        if response.HasField("complete"):
            break
    assert messages[-1].complete.index == 1
    say(core, first, b"one")
    rest = await messages_of(stream)
    assert (text_of(rest, 0), rest[-1].index, bytes(rest[-1].output_ids)) == (b"one", 0, b"one")


async def test_finish_reasons_are_spelled_as_the_contract_has_them(engine: VllmEngineStub, core: FakeCore) -> None:
    """Of n sequences one may fail alone."""
    for reason, spelled in (
        (FinishReason.LENGTH, "length"),
        (FinishReason.STOP, "stop"),
        (FinishReason.REPETITION, "repetition"),
    ):
        stream = engine.Generate(asks())
        core.emit_token((await core.receive_add()).request_id, 65, reason)
        assert (await messages_of(stream))[-1].finish_reason == spelled
    stream = engine.Generate(asks(n=2, temperature=1))
    first, second = (await core.receive_add()).request_id, (await core.receive_add()).request_id
    core.emit(EngineCoreOutput(first, [], finish_reason=FinishReason.ERROR, stop_reason="NaN"))
    say(core, second, b"ok")
    completes = [message for message in await messages_of(stream) if isinstance(message, pb.GenerateComplete)]
    assert {complete.index: complete.finish_reason for complete in completes} == {0: "error", 1: "length"}


async def test_stop_string_is_found_here(engine: VllmEngineStub, core: FakeCore, gateway: GatewayServer) -> None:
    """Over several tokens: complete names it, all tokens up to it are there, and the core is told once."""
    stream = engine.Generate(asks(stop=["beta gamma"], temperature=0))
    core_id = (await core.receive_add()).request_id
    say(core, core_id, b"alpha beta gamma delta", None)
    messages = await messages_of(stream)
    assert text_of(messages) == bytes(messages[-1].output_ids) == b"alpha beta gamma"
    assert (messages[-1].finish_reason, messages[-1].matched_stop_str) == ("stop", "beta gamma")
    assert await core.receive_abort() == [core_id]
    await until_idle(gateway)


async def test_only_a_stop_token_of_the_client_is_told(engine: VllmEngineStub, core: FakeCore) -> None:
    """As vLLM has it: nothing is told of the end-of-sequence token."""
    for token_id, told in ((EOS_TOKEN_ID, None), (ord("!"), "matched_token_id")):
        stream = engine.Generate(asks(stop_token_ids=[ord("!")]))
        request = await core.receive_add()
        assert request.sampling_params.stop_token_ids == [ord("!")]
        stop_reason = token_id if told else None
        core.emit(
            EngineCoreOutput(request.request_id, [token_id], finish_reason=FinishReason.STOP, stop_reason=stop_reason)
        )
        complete = (await messages_of(stream))[-1]
        assert (complete.finish_reason, complete.WhichOneof("matched_stop")) == ("stop", told)
        assert complete.matched_token_id == (token_id if told else 0)


def scores(rows: int) -> LogprobsLists:
    """The token itself is the second best."""
    token_ids = np.array([[65, 66, 65]] * rows, "<i4")
    return LogprobsLists(token_ids, np.array([[-1.5, -0.5, -1.5]] * rows, "<f4"), np.array([2] * rows, "<i8"))


@pytest.mark.parametrize(("asked", "top"), [(0, None), (1, [65]), (2, [65, 66])])
@pytest.mark.parametrize("stream", [True, False])
async def test_output_logprobs_are_parallel_arrays(
    engine: VllmEngineStub, core: FakeCore, asked: int, top: list[int] | None, stream: bool
) -> None:
    """A chunk has those of its own tokens, a complete without chunks all; alternatives begin with the token itself."""
    call = engine.Generate(asks(stream=stream, logprobs=asked, temperature=1))
    core_id = (await core.receive_add()).request_id
    core.emit(EngineCoreOutput(core_id, [65, 65], scores(2)))
    core.emit(EngineCoreOutput(core_id, [65], scores(1), finish_reason=FinishReason.LENGTH))
    messages = await messages_of(call)
    parts = [message.output_logprobs for message in messages[: -1 if stream else None]]
    assert [token_id for part in parts for token_id in part.token_ids] == [65] * 3
    assert [value for part in parts for value in part.token_logprobs] == [-1.5] * 3
    assert [[*row.token_ids] for part in parts for row in part.top_logprobs] == ([] if top is None else [top] * 3)


@pytest.mark.parametrize("stream", [True, False])
async def test_input_logprobs_come_once_for_every_sequence(
    engine: VllmEngineStub, core: FakeCore, stream: bool
) -> None:
    """On its first message; the first token of the prompt has no value."""
    rows = Tensor(np.array([[66, 7], [67, 67]], "<i4")), Tensor(np.array([[-1.5, -0.5], [-0.25, -0.25]], "<f4"))
    of_prompt = LogprobsTensors(*rows, Tensor(np.array([2, 1], "<i4")))
    call = engine.Generate(asks(prompt=bytes([5, 66, 67]), stream=stream, n=2, temperature=1, prompt_logprobs=2))
    for _ in range(2):
        request = await core.receive_add()
        core.emit(EngineCoreOutput(request.request_id, [65], new_prompt_logprobs_tensors=of_prompt))
        core.emit_token(request.request_id, 66, FinishReason.LENGTH)
    scored = [message for message in await messages_of(call) if message.HasField("input_logprobs")]
    assert sorted(message.index for message in scored) == [0, 1]
    for message in scored:
        found = message.input_logprobs
        assert [*found.token_ids] == [5, 66, 67]
        assert [value.value if value.HasField("value") else None for value in found.token_logprobs] == [
            None,
            -1.5,
            -0.25,
        ]
        assert [[*row.token_ids] for row in found.top_logprobs] == [[], [66, 7], [67]]
        assert stream is isinstance(message, pb.GenerateStreamChunk)


async def test_abort_ends_the_stream(engine: VllmEngineStub, core: FakeCore, gateway: GatewayServer) -> None:
    """Every sequence that runs gets its complete, with what it has so far, and the core is told."""
    stream = engine.Generate(asks(n=2, temperature=1))
    first, second = (await core.receive_add()).request_id, (await core.receive_add()).request_id
    say(core, first, b"done")
    core.emit_token(second, ord("x"))
    seen = set()
    async for response in stream:
        seen.add((str(response.WhichOneof("response")), response.chunk.index or response.complete.index))
        if {("complete", 0), ("chunk", 1)} <= seen:
            break
    await engine.Abort(pb.AbortRequest(request_ids=["r", "unknown"]))
    (complete,) = [m for m in await messages_of(stream) if isinstance(m, pb.GenerateComplete)]
    assert (complete.index, complete.finish_reason, bytes(complete.output_ids)) == (1, "abort", b"x")
    assert await core.receive_abort() == [second]
    await until_idle(gateway)


async def test_abort_before_the_first_token_ends_the_stream(engine: VllmEngineStub, core: FakeCore) -> None:
    """With a complete and nothing else."""
    stream = engine.Generate(asks())
    core_id = (await core.receive_add()).request_id
    await engine.Abort(pb.AbortRequest(request_ids=["r"]))
    (complete,) = await messages_of(stream)
    assert (complete.finish_reason, complete.prompt_tokens, complete.completion_tokens) == ("abort", 2, 0)
    assert await core.receive_abort() == [core_id]


async def test_cancel_tells_the_core(engine: VllmEngineStub, core: FakeCore, gateway: GatewayServer) -> None:
    """So does a deadline that passes."""
    for timeout_s in (None, 3):
        stream = engine.Generate(asks(), timeout=timeout_s)
        core_id = (await core.receive_add()).request_id
        if timeout_s is None:
            stream.cancel()
        assert await core.receive_abort() == [core_id]
        await until_idle(gateway)


async def test_id_of_a_live_request_is_refused(engine: VllmEngineStub, core: FakeCore) -> None:
    """ALREADY_EXISTS, and the first goes on."""
    stream = engine.Generate(asks())
    core_id = (await core.receive_add()).request_id
    assert (await error_of(engine.Generate(asks()).read())).code is grpc.StatusCode.ALREADY_EXISTS
    say(core, core_id, b"ok")
    assert text_of(await messages_of(stream)) == b"ok"


async def test_text_is_tokenized_here(engine: VllmEngineStub, core: FakeCore) -> None:
    """Routers send tokens, others may send text."""
    stream = engine.Generate(pb.GenerateRequest(request_id="r", text="hello"))
    request = await core.receive_add()
    assert request.prompt_token_ids == [*b"hello"]
    say(core, request.request_id, b"!")
    (complete,) = await messages_of(stream)
    assert complete.prompt_tokens == 5


async def test_a_core_that_dies_ends_the_stream_unavailable(engine: VllmEngineStub, core: FakeCore) -> None:
    """After the first message too."""
    stream = engine.Generate(asks())
    core.emit_token((await core.receive_add()).request_id, 65)
    assert (await stream.read()).HasField("chunk")
    core.report_death()
    async with asyncio.timeout(20):
        assert (await error_of(stream.read())).code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("token_id", [-5, 257, 2**32])
async def test_a_token_that_is_none_fails_alone(engine: VllmEngineStub, core: FakeCore, token_id: int) -> None:
    """INTERNAL for the request that it came for; its neighbour goes on."""
    victim = engine.Generate(asks("victim"))
    victim_id = (await core.receive_add()).request_id
    neighbour = engine.Generate(asks("neighbour"))
    neighbour_id = (await core.receive_add()).request_id
    core.emit(EngineCoreOutput(victim_id, [token_id]), EngineCoreOutput(neighbour_id, [65]))
    assert (await error_of(messages_of(victim))).code is grpc.StatusCode.INTERNAL
    say(core, neighbour_id, b"B")
    assert text_of(await messages_of(neighbour)) == b"AB"


async def test_more_sequences_than_there_may_be_are_the_clients_fault(engine: VllmEngineStub) -> None:
    """Not RESOURCE_EXHAUSTED, which a router would try five times."""
    error = await error_of(messages_of(engine.Generate(asks(n=1001, temperature=1))))
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "TOO_MANY_SEQUENCES")
    assert error.fields == ["sampling_params.n"]


@pytest.mark.parametrize("core", [msgspec.structs.replace(READY, num_gpu_blocks=11, max_model_len=1024)], indirect=True)
async def test_32_a_prompt_that_needs_more_blocks_than_there_are(engine: VllmEngineStub, core: FakeCore) -> None:
    """Refused, and what comes after it is served."""
    error = await error_of(messages_of(engine.Generate(asks(prompt=b"x" * 161))))
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "PROMPT_EXCEEDS_KV_CACHE")
    assert error.fields == ["input"]
    stream = engine.Generate(asks(prompt=b"x" * 160))
    say(core, (await core.receive_add()).request_id, b"ok")
    assert text_of(await messages_of(stream)) == b"ok"


async def test_a_full_queue_is_tried_again(engine: VllmEngineStub, core: FakeCore) -> None:
    """RESOURCE_EXHAUSTED with a delay."""
    everything = engine.Generate(asks(n=1000, temperature=1))
    await core.receive_add()
    error = await error_of(messages_of(engine.Generate(asks("s"))))
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
    assert error.retry_after_s
    everything.cancel()


async def test_a_trace_goes_on_to_the_core(engine: VllmEngineStub, core: FakeCore) -> None:
    """traceparent and tracestate, as they come; other metadata does not."""
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
    stream = engine.Generate(asks(), metadata=[*trace.items(), ("x-other", "1")])
    assert (await core.receive_add()).trace_headers == trace
    stream.cancel()
