"""InferenceService over a real channel, with a scripted core behind it: tokens are bytes, so scripts are readable."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import replace

import grpc
import msgspec
import numpy as np
import pytest

from core.wire.messages import REFUSED, EngineCoreOutput, FinishReason, LogprobsLists, PrefillStats
from core.wire.pooling_params import PoolingParams
from core.wire.tensor import Tensor
from service.config import ConnectionsConfig, GatewayConfig
from service.server import GatewayServer
from service.services import INFERENCE
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.byte_model import EOS_TOKEN_ID
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import READY, FakeCore
from tests.service.servicers.calls import events_of, until_idle


def text_of(events: Sequence[pb.GenerateStreamResponse], index: int = 0) -> str:
    return "".join(event.delta.text for event in events if event.HasField("delta") and event.delta.index == index)


async def say(core: FakeCore, request_id: str, text: str, finish: FinishReason | None = FinishReason.LENGTH) -> None:
    """The core generates ``text``, one token a message."""
    for position, byte in enumerate(text.encode(), start=1):
        core.emit_token(request_id, byte, finish if position == len(text.encode()) else None)


async def test_stream_starts_flows_and_finishes(inference: InferenceServiceStub, core: FakeCore) -> None:
    """A stream is one started, then deltas that join to the text, then one finished with the usage."""
    stream = inference.GenerateStream(pb.GenerateRequest(request_id="r", text="hi"))
    request = await core.receive_add()
    assert request.prompt_token_ids == [*b"hi"]
    assert request.external_req_id == "r"
    assert request.request_id.startswith("r-")
    first = EngineCoreOutput(request.request_id, [*"né".encode()[:2]], prefill_stats=PrefillStats(2, 1, 1))
    core.emit(first)
    core.emit_token(request.request_id, "né".encode()[2])
    core.emit_token(request.request_id, EOS_TOKEN_ID, FinishReason.STOP)
    started, *deltas, finished = await events_of(stream)
    assert (started.started.num_prompt_tokens, started.started.num_cached_tokens) == (2, 1)
    assert text_of(deltas) == "né"
    assert finished.finished.finish_reason == pb.FINISH_REASON_STOP
    assert finished.finished.WhichOneof("stop") is None
    assert finished.finished.usage == pb.Usage(num_prompt_tokens=2, num_cached_tokens=1, num_output_tokens=4)
    assert {event.request_id for event in (started, *deltas, finished)} == {"r"}


async def test_unary_answer_is_the_joined_stream(inference: InferenceServiceStub, core: FakeCore) -> None:
    """Generate answers what the deltas of a stream join to."""
    call = inference.Generate(pb.GenerateRequest(text="hi", output_options=pb.OutputOptions(token_ids=True)))
    request = await core.receive_add()
    await say(core, request.request_id, "hello", FinishReason.LENGTH)
    response = await call
    (output,) = response.outputs
    assert (output.text, list(output.token_ids)) == ("hello", [*b"hello"])
    assert output.finish_reason == pb.FINISH_REASON_LENGTH
    assert response.usage == pb.Usage(num_prompt_tokens=2, num_output_tokens=5)
    assert response.request_id


async def test_usage_is_in_the_trailers(inference: InferenceServiceStub, core: FakeCore) -> None:
    """Of the whole request, whether it is streamed or not, with one message per sequence or many."""
    request = pb.GenerateRequest(text="hi", sampling_params={"n": 2, "temperature": 1})
    for is_stream in (True, False):
        call = inference.GenerateStream(request) if is_stream else inference.Generate(request)
        first, second = [(await core.receive_add()).request_id for _ in range(2)]
        core.emit(EngineCoreOutput(first, [65], prefill_stats=PrefillStats(2, 1, 1)))
        core.emit_token(second, 66, FinishReason.LENGTH)
        core.emit(EngineCoreOutput(first, [67, 68], finish_reason=FinishReason.LENGTH))
        await (events_of(call) if isinstance(call, AsyncIterable) else call)
        trailers = dict(await call.trailing_metadata() or ())
        assert await call.code() is grpc.StatusCode.OK
        assert {name: value for name, value in trailers.items() if name.startswith("sluicegate-num-")} == {
            "sluicegate-num-prompt-tokens": "2",
            "sluicegate-num-cached-tokens": "1",
            "sluicegate-num-output-tokens": "4",
        }


async def test_n_sequences_come_apart(inference: InferenceServiceStub, core: FakeCore) -> None:
    """n sequences are n requests to the core with seeds of their own; each delta names its sequence."""
    params = {"n": 2, "seed": 7}
    stream = inference.GenerateStream(pb.GenerateRequest(request_id="r", text="hi", sampling_params=params))
    first, second = await core.receive_add(), await core.receive_add()
    assert [first.request_id[:4], second.request_id[:4]] == ["0_r-", "1_r-"]
    assert [first.sampling_params.seed, second.sampling_params.seed] == [7, 8]
    await say(core, second.request_id, "two")
    await say(core, first.request_id, "one")
    events = await events_of(stream)
    assert [text_of(events, index) for index in (0, 1)] == ["one", "two"]
    assert sum(event.HasField("started") for event in events) == 1
    assert sorted(event.finished.index for event in events if event.HasField("finished")) == [0, 1]


async def test_stop_string_ends_the_sequence_and_the_core_is_told(
    inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer
) -> None:
    """A stop string over several tokens cuts the text, ends the stream, and aborts the request in the core once."""
    params = {"stop": ["beta gamma"]}
    stream = inference.GenerateStream(pb.GenerateRequest(text="hi", sampling_params=params))
    request = await core.receive_add()
    await say(core, request.request_id, "alpha beta gamma delta", None)
    events = await events_of(stream)
    assert text_of(events) == "alpha "
    assert events[-1].finished.stop_string == "beta gamma"
    assert events[-1].finished.usage.num_output_tokens == len("alpha beta gamma")
    assert await core.receive_abort() == [request.request_id]
    await until_idle(gateway)


async def test_stop_string_of_one_sequence_leaves_the_others(inference: InferenceServiceStub, core: FakeCore) -> None:
    """With n = 2, the sequence that met a stop string is aborted at once while the other goes on."""
    params = {"n": 2, "stop": ["!"], "temperature": 1}
    stream = inference.GenerateStream(pb.GenerateRequest(text="hi", sampling_params=params))
    first, second = await core.receive_add(), await core.receive_add()
    await say(core, first.request_id, "one!", None)
    assert await core.receive_abort() == [first.request_id]
    await say(core, second.request_id, "two")
    events = await events_of(stream)
    assert [text_of(events, index) for index in (0, 1)] == ["one", "two"]


async def test_id_of_a_live_request_is_refused(
    inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer
) -> None:
    """A second request with a live id gets ALREADY_EXISTS; the first goes on; afterwards the id is free."""
    first = inference.GenerateStream(pb.GenerateRequest(request_id="same", text="hi"))
    request = await core.receive_add()
    error = await error_of(inference.Generate(pb.GenerateRequest(request_id="same", text="ho")))
    assert (error.code, error.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_IN_USE")
    await say(core, request.request_id, "ok")
    assert text_of(await events_of(first)) == "ok"
    await until_idle(gateway)
    again = inference.Generate(pb.GenerateRequest(request_id="same", text="hi"))
    await say(core, (await core.receive_add()).request_id, "ok")
    assert (await again).outputs[0].text == "ok"


async def test_full_queue_is_refused_with_a_delay(
    inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer
) -> None:
    """A request beyond the bound gets RESOURCE_EXHAUSTED with RetryInfo; one that could never fit has none."""
    big = inference.GenerateStream(pb.GenerateRequest(text="hi", sampling_params={"n": 999}))
    await core.receive_add()
    for n, reason, has_delay in ((2, "QUEUE_FULL", True), (1001, "TOO_MANY_SEQUENCES", False)):
        error = await error_of(inference.Generate(pb.GenerateRequest(text="hi", sampling_params={"n": n})))
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (error.reason, error.retry_after_s is not None) == (reason, has_delay)
    big.cancel()
    await until_idle(gateway)


async def test_full_queue_reads_no_text(
    inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer
) -> None:
    """What could not be run is refused before it is translated: here a text that is too long as well."""
    text = "long " * 5000
    error = await error_of(inference.Generate(pb.GenerateRequest(text=text)))
    assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["text"])
    everything = inference.GenerateStream(pb.GenerateRequest(text="hi", sampling_params={"n": 1000}))
    await core.receive_add()
    assert (await error_of(inference.Generate(pb.GenerateRequest(text=text)))).reason == "QUEUE_FULL"
    everything.cancel()
    await until_idle(gateway)


SMALL_KV_CACHE = msgspec.structs.replace(READY, num_gpu_blocks=4)
SMALL_KV_CACHE_WITH_SIZE = msgspec.structs.replace(SMALL_KV_CACHE, kv_cache_size_tokens=64)


@pytest.mark.parametrize("core", [SMALL_KV_CACHE, SMALL_KV_CACHE_WITH_SIZE], indirect=True)
async def test_prompt_larger_than_the_kv_cache(inference: InferenceServiceStub, core: FakeCore) -> None:
    """A prompt that the KV cache can never hold gets RESOURCE_EXHAUSTED naming both numbers, and no delay.

    Of its blocks the first is the null block, which holds nothing.
    """
    error = await error_of(inference.Generate(pb.GenerateRequest(text="x" * 49)))
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "PROMPT_EXCEEDS_KV_CACHE")
    assert error.retry_after_s is None
    assert "48 tokens" in error.message
    assert "49" in error.message
    fits = inference.Generate(pb.GenerateRequest(text="x" * 48))
    await say(core, (await core.receive_add()).request_id, "ok")
    assert (await fits).outputs[0].text == "ok"


async def test_failed_request_fails_alone(
    inference: InferenceServiceStub, core: FakeCore, caplog: pytest.LogCaptureFixture
) -> None:
    """A core's finish ERROR is INTERNAL for that call, with an id and no trace; its neighbour is undisturbed."""
    victim = inference.GenerateStream(pb.GenerateRequest(text="a"))
    victim_id = (await core.receive_add()).request_id
    neighbour = inference.GenerateStream(pb.GenerateRequest(text="b"))
    neighbour_id = (await core.receive_add()).request_id
    failure = EngineCoreOutput(victim_id, [], finish_reason=FinishReason.ERROR, stop_reason="NaN in the logits")
    core.emit(failure, EngineCoreOutput(neighbour_id, [65]))
    error = await error_of(events_of(victim))
    assert (error.code, error.reason) == (grpc.StatusCode.INTERNAL, "ENGINE_ERROR")
    assert error.metadata["error_id"] in error.message
    assert "NaN" not in error.message
    (record,) = [record for record in caplog.records if error.metadata["error_id"] in record.getMessage()]
    assert record.getMessage().endswith("NaN in the logits")
    await say(core, neighbour_id, "B")
    assert text_of(await events_of(neighbour)) == "AB"


async def test_failed_sequence_leaves_its_siblings(inference: InferenceServiceStub, core: FakeCore) -> None:
    """Of n sequences one that fails ends as ERROR and the others as they would have; unary and streamed alike."""
    request = pb.GenerateRequest(text="hi", sampling_params={"n": 2, "temperature": 1})
    for unary in (True, False):
        call = inference.Generate(request) if unary else inference.GenerateStream(request)
        first, second = await core.receive_add(), await core.receive_add()
        core.emit(EngineCoreOutput(first.request_id, [], finish_reason=FinishReason.ERROR))
        await say(core, second.request_id, "two")
        if unary:
            reasons = [output.finish_reason for output in (await call).outputs]
        else:
            events = await events_of(call)
            assert text_of(events, 1) == "two"
            ends = [event.finished for event in events if event.HasField("finished")]
            reasons = [end.finish_reason for end in sorted(ends, key=lambda end: end.index)]
        assert reasons == [pb.FINISH_REASON_ERROR, pb.FINISH_REASON_LENGTH]


async def test_refused_request_says_why(inference: InferenceServiceStub, core: FakeCore) -> None:
    """A request that the core does not take on is INVALID_ARGUMENT with the core's words."""
    call = inference.Generate(pb.GenerateRequest(text="hi"))
    request = await core.receive_add()
    refusal = REFUSED + "prompt_token_ids must fit the KV cache of 1 tokens, got 2"
    core.emit(EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.ERROR, stop_reason=refusal))
    error = await error_of(call)
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "REFUSED_BY_ENGINE")
    assert error.message.endswith("prompt_token_ids must fit the KV cache of 1 tokens, got 2")
    assert error.fields == ["request"]


@pytest.mark.parametrize("token_id", [-5, 257, 2**32])
async def test_token_outside_the_vocabulary_fails_alone(
    inference: InferenceServiceStub, core: FakeCore, token_id: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A token id that is none ends its own request with INTERNAL, is aborted in the core, and no other is disturbed.

    The log says which id it was.
    """
    victim = inference.GenerateStream(pb.GenerateRequest(text="a"))
    victim_id = (await core.receive_add()).request_id
    neighbour = inference.GenerateStream(pb.GenerateRequest(text="b"))
    neighbour_id = (await core.receive_add()).request_id
    core.emit(EngineCoreOutput(victim_id, [token_id]), EngineCoreOutput(neighbour_id, [65]))
    error = await error_of(events_of(victim))
    assert (error.code, error.reason) == (grpc.StatusCode.INTERNAL, "ENGINE_ERROR")
    assert f"token id {token_id} is outside the vocabulary of 257" in caplog.text
    assert await core.receive_abort() == [victim_id]
    await say(core, neighbour_id, "B")
    assert text_of(await events_of(neighbour)) == "AB"


async def test_engine_abort_is_a_finish(inference: InferenceServiceStub, core: FakeCore) -> None:
    """What the core aborts, without having started it or midway, ends with a finished ABORT and status OK."""
    stream = inference.GenerateStream(pb.GenerateRequest(text="hi"))
    request = await core.receive_add()
    core.emit(EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.ABORT))
    started, finished = await events_of(stream)
    assert started.HasField("started")
    assert finished.finished.finish_reason == pb.FINISH_REASON_ABORT


async def test_core_death_is_unavailable_at_once(
    inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer
) -> None:
    """When the core dies, running calls end UNAVAILABLE after what they had, with RetryInfo; new ones are refused."""
    stream = inference.GenerateStream(pb.GenerateRequest(text="hi"))
    unary = inference.Generate(pb.GenerateRequest(text="hi"))
    ids = [(await core.receive_add()).request_id for _ in range(2)]
    lost = asyncio.ensure_future(gateway.until_core_lost())
    for request_id in ids:
        core.emit_token(request_id, 65)
    core.report_death()
    started, delta = await stream.read(), await stream.read()
    assert (started.HasField("started"), delta.delta.text) == (True, "A")
    error = await error_of(stream.read())
    assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "CORE_LOST")
    assert 1 <= (error.retry_after_s or 0) <= 2
    assert (await error_of(unary)).code is grpc.StatusCode.UNAVAILABLE
    await asyncio.wait_for(lost, 10)
    error = await error_of(inference.Generate(pb.GenerateRequest(text="hi")))
    assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "CORE_LOST")
    assert 1 <= (error.retry_after_s or 0) <= 2
    await until_idle(gateway)


async def test_slow_reader_gets_merged_deltas(inference: InferenceServiceStub, core: FakeCore) -> None:
    """A reader who comes late gets all of the text in far fewer messages than tokens."""
    options = pb.OutputOptions(text=False, token_ids=True)
    request = pb.GenerateRequest(text="hi", output_options=options, sampling_params={"logprobs": 1})
    stream = inference.GenerateStream(request)
    request_id = (await core.receive_add()).request_id
    num_tokens = 1000
    for position in range(num_tokens):
        row = LogprobsLists(np.full((1, 2), 65, "<i4"), np.full((1, 2), -0.5, "<f4"), np.ones(1, "<i8"))
        finish = FinishReason.LENGTH if position == num_tokens - 1 else None
        core.emit(EngineCoreOutput(request_id, [65], new_logprobs=row, finish_reason=finish))
    events = await events_of(stream)
    deltas = [event.delta for event in events if event.HasField("delta")]
    assert sum(len(delta.token_ids) for delta in deltas) == num_tokens
    assert sum(len(delta.logprobs) for delta in deltas) == num_tokens
    assert len(deltas) < num_tokens / 2
    assert events[-1].finished.usage.num_output_tokens == num_tokens


async def test_logprobs(inference: InferenceServiceStub, core: FakeCore) -> None:
    """Each new token comes with its log-probability, its rank and the most likely tokens."""
    stream = inference.GenerateStream(pb.GenerateRequest(text="hi", sampling_params={"logprobs": 2}))
    request = await core.receive_add()
    assert request.sampling_params.logprobs == 2
    row = LogprobsLists(np.array([[66, 65, 66]], "<i4"), np.array([[-1.5, -0.5, -1.5]], "<f4"), np.array([2], "<i8"))
    core.emit(EngineCoreOutput(request.request_id, [66], new_logprobs=row, finish_reason=FinishReason.LENGTH))
    (entry,) = (await events_of(stream))[1].delta.logprobs
    assert (entry.token_id, entry.logprob, entry.rank) == (66, -1.5, 2)
    assert [(top.token_id, top.logprob) for top in entry.top] == [(65, -0.5), (66, -1.5)]


async def test_broken_request_names_the_field(inference: InferenceServiceStub) -> None:
    """What is wrong in a request comes back as INVALID_ARGUMENT with the field in BadRequest, by every method."""
    bad = pb.GenerateRequest(text="hi", sampling_params={"top_p": 2.0})
    for call in (inference.Generate(bad), events_of(inference.GenerateStream(bad))):
        error = await error_of(call)
        assert error.code is grpc.StatusCode.INVALID_ARGUMENT
        assert error.fields == ["sampling_params.top_p"]


@pytest.mark.parametrize("method", ["Generate", "GenerateStream", "Tokenize"])
async def test_undecodable_request_is_named(channel: grpc.aio.Channel, method: str) -> None:
    """Bytes that are no such message are INVALID_ARGUMENT with details."""
    path, garbage = f"/{INFERENCE}/{method}", b"\x0a\xff\xff garbage"
    streams = method == "GenerateStream"
    error = await error_of(
        channel.unary_stream(path)(garbage).read() if streams else channel.unary_unary(path)(garbage)
    )
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "UNDECODABLE_REQUEST")
    assert error.fields == ["request"]


async def test_worst_error_still_fits_its_trailers(inference: InferenceServiceStub) -> None:
    """Everything wrong at once, at the greatest length, still arrives as INVALID_ARGUMENT with details."""
    nan = float("nan")
    params = dict.fromkeys(("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty"), nan)
    params |= {"n": -1, "top_k": -9, "max_tokens": -1, "min_tokens": -1, "logprobs": 99, "prompt_logprobs": 99}
    params |= {"stop": ["x" * 5000] * 70, "stop_token_ids": [2**31] * 99, "bad_words": [""] * 2000}
    request = pb.GenerateRequest(request_id="\u00e9" * 5000, sampling_params=params, data_parallel_rank=77)
    error = await error_of(inference.Generate(request))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert len(error.fields) > 5


async def test_message_sizes(inference: InferenceServiceStub, core: FakeCore) -> None:
    """Millions of tokens are a prompt too long; beyond 16 MiB gRPC refuses the message; the server goes on."""
    max_bytes = ConnectionsConfig().max_message_bytes
    token_ids = pb.TokenIds(ids=[200] * 1_500_000)
    error = await error_of(inference.Generate(pb.GenerateRequest(token_ids=token_ids)))
    assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["token_ids"])
    error = await error_of(inference.Generate(pb.GenerateRequest(text="x" * (max_bytes + 1))))
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(max_bytes) in error.message
    call = inference.Generate(pb.GenerateRequest(text="hi"))
    await say(core, (await core.receive_add()).request_id, "ok")
    assert (await call).outputs[0].text == "ok"


async def test_embed_asks_the_core_whether_it_can_and_only_once(
    inference: InferenceServiceStub, core: FakeCore
) -> None:
    """Then each text is one request under the task that vLLM calls embed."""
    first = inference.Embed(pb.EmbedRequest(text="hi", dimensions=2))
    asked = await core.receive_call()
    assert asked.method == "get_supported_tasks"
    core.answer(asked, ["embed"])
    for call in (first, inference.Embed(pb.EmbedRequest(text="hi", dimensions=2))):
        request = await core.receive_add()
        assert request.sampling_params is None
        assert msgspec.convert(request.pooling_params, PoolingParams) == PoolingParams(dimensions=2, task="embed")
        vector = Tensor(np.array([0.5, 0.25], np.float32))
        core.emit(EngineCoreOutput(request.request_id, [], pooling_output=vector, finish_reason=FinishReason.STOP))
        response = await call
        assert (list(response.embedding), response.num_prompt_tokens) == ([0.5, 0.25], 2)


async def test_embed_where_the_model_cannot(inference: InferenceServiceStub, core: FakeCore) -> None:
    """UNIMPLEMENTED, and the core gets no request."""
    call = inference.Embed(pb.EmbedRequest(text="hi"))
    core.answer(await core.receive_call(), ["generate"])
    error = await error_of(call)
    assert (error.code, error.reason) == (grpc.StatusCode.UNIMPLEMENTED, "MODEL_CANNOT_EMBED")


async def test_tokenize_and_detokenize(inference: InferenceServiceStub) -> None:
    """Tokenize and Detokenize undo each other, for short texts and for long ones."""
    for text in ("naïve", "long " * 5000):
        tokenized = await inference.Tokenize(pb.TokenizeRequest(text=text))
        assert list(tokenized.token_ids) == [*text.encode()]
        assert tokenized.max_model_len == 1024
        detokenized = await inference.Detokenize(pb.DetokenizeRequest(token_ids=tokenized.token_ids))
        assert detokenized.text == text


@pytest.fixture
async def paced(gateway_config: GatewayConfig, core: FakeCore) -> AsyncIterator[InferenceServiceStub]:
    """A gateway that lets deltas wait for ten seconds."""
    limits = replace(gateway_config.limits, min_flush_interval_s=10)
    server = GatewayServer(replace(gateway_config, limits=limits))
    try:
        await asyncio.gather(server.start(), core.shake_hands(gateway_config.core.handshake_address))
        async with grpc.aio.insecure_channel(server.grpc_addresses[0]) as channel:
            yield InferenceServiceStub(channel)
    finally:
        await server.stop()


async def test_deltas_wait_for_the_flush_interval(paced: InferenceServiceStub, core: FakeCore) -> None:
    """The first token comes at once, what follows together with the end, which comes at once too."""
    stream = paced.GenerateStream(pb.GenerateRequest(text="hi"))
    request_id = (await core.receive_add()).request_id
    core.emit_token(request_id, 65)
    assert (await stream.read()).HasField("started")
    assert (await stream.read()).delta.text == "A"
    await say(core, request_id, "BCDE")
    assert (await stream.read()).delta.text == "BCDE"
    assert (await stream.read()).HasField("finished")
