"""The gateway's end of the wire, against a scripted core over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from core.wire.messages import (
    EngineCoreEvent,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EventType,
    FinishReason,
    PrefillStats,
    RequestType,
)
from core.wire.sampling_params import SamplingParams
from core.wire.stats import PrefixCacheStats, SchedulerStats
from core.wire.version import WireVersion, introduction, shaped_outputs
from service.cores.engines import Engines
from service.cores.utility_calls import UtilityError
from service.engine_client import EngineClient
from service.errors import Unavailable
from tests.service.cable import Cable
from tests.service.fake_core import READY, FakeCore


def a_request(request_id: str) -> EngineCoreRequest:
    return EngineCoreRequest(request_id, [1, 2, 3], None, SamplingParams(), None, 0.0, None, None, None)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EngineClient]:
    engines = Engines(f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out")
    yield EngineClient(engines)
    engines.close()


@pytest.fixture
async def core(client: EngineClient) -> AsyncIterator[FakeCore]:
    async with FakeCore() as fake:
        fake.connect(client.engines.addresses)
        async with asyncio.timeout(10):
            assert await client.engines.ready == READY
        yield fake


async def test_one_of_several_front_ends_says_which(tmp_path: Path) -> None:
    """Requests, calls and the question whether a core is there bear the client index, by which cores answer."""
    engines = Engines(f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out", client_index=2)
    client = EngineClient(engines)
    async with FakeCore() as core:
        core.connect(engines.addresses)
        await engines.ready
        client.add([a_request("a")])
        assert (await core.receive_add()).client_index == 2
        call = asyncio.ensure_future(client.call_utility("is_sleeping"))
        assert (await core.receive_call()).client_index == 2
        for _ in range(2):
            engines.beat()
        assert (await core.receive_call()).client_index == 2
        call.cancel()
    engines.close()


async def test_request_reaches_the_core_and_its_outputs_the_stream(client: EngineClient, core: FakeCore) -> None:
    """A request arrives unchanged at the core; its outputs come to its stream in order."""
    request = a_request("a")
    stream = client.add([request])
    assert await core.receive_add() == request
    core.emit_token("a", 7)
    assert (await stream.next())[0].new_token_ids == [7]
    core.emit_token("a", 8, FinishReason.STOP)
    (last,) = await stream.next()
    assert (last.new_token_ids, last.finish_reason) == ([8], FinishReason.STOP)
    assert not stream.unfinished


async def test_requests_of_one_stream_share_it(client: EngineClient, core: FakeCore) -> None:
    """One message for two requests of a stream is one wake-up of the caller."""
    stream = client.add([a_request("a"), a_request("b")])
    core.emit(EngineCoreOutput("a", [1]), EngineCoreOutput("b", [2]))
    assert [output.request_id for output in await stream.next()] == ["a", "b"]


async def test_closing_aborts_only_what_has_not_ended(client: EngineClient, core: FakeCore) -> None:
    """Closing a stream sends one ABORT for its unfinished requests and empties the table."""
    stream = client.add([a_request("a"), a_request("b"), a_request("c")])
    core.emit_token("b", 1, FinishReason.LENGTH)
    await stream.next()
    client.close_stream(stream)
    client.close_stream(stream)
    for _ in range(3):
        await core.receive_add()
    assert await core.receive_abort() == ["a", "c"]
    assert client.num_requests == 0


async def test_abort_ends_the_stream_at_once(client: EngineClient, core: FakeCore) -> None:
    """Abort gives the stream a last output with ABORT and tells the core; what the core still sends is ignored."""
    stream = client.add([a_request("a")])
    await core.receive_add()
    client.abort(["a", "unknown"])
    assert await core.receive_abort() == ["a"]
    core.emit_token("a", 5)
    assert [output.finish_reason for output in await stream.next()] == [FinishReason.ABORT]
    client.abort(["a"])
    client.close_stream(stream)
    other = client.add([a_request("b")])
    core.emit_token("b", 6, FinishReason.STOP)
    assert (await other.next())[0].new_token_ids == [6]
    assert await core.receive_add() == a_request("b")


async def test_stop_aborts_one_request_of_a_stream(client: EngineClient, core: FakeCore) -> None:
    """A request that the caller stops is aborted in the core, gives nothing more, and is not aborted again."""
    stream = client.add([a_request("a"), a_request("b")])
    client.stop(stream, "a", FinishReason.STOP)
    core.emit(EngineCoreOutput("a", [1]), EngineCoreOutput("b", [2], finish_reason=FinishReason.STOP))
    assert [output.request_id for output in await stream.next()] == ["b"]
    client.close_stream(stream)
    await core.receive_add()
    await core.receive_add()
    assert await core.receive_abort() == ["a"]


async def test_unknown_request_is_ignored(client: EngineClient, core: FakeCore) -> None:
    """Outputs for a request that nobody waits for disturb no other."""
    stream = client.add([a_request("a")])
    core.emit(EngineCoreOutput("stranger", [1]), EngineCoreOutput("a", [2]))
    assert (await stream.next())[0].new_token_ids == [2]


GARBAGE = [
    [b""],
    [b"\xc1"],
    [b"not msgpack at all"],
    [msgspec.msgpack.encode({"a": 1})],
    [msgspec.msgpack.encode([0, "outputs"])],
    [msgspec.msgpack.encode([0, [["a"]]])],
    [b"\x98", b"aux", b"aux"],
    [b"", b""],
]


@pytest.mark.parametrize("frames", GARBAGE)
async def test_garbage_does_not_end_the_reader(
    client: EngineClient, core: FakeCore, frames: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """An undecodable message is logged; a good one after it is delivered."""
    stream = client.add([a_request("good")])
    core.send_frames(frames)
    core.emit_token("good", 1)
    assert (await stream.next())[0].new_token_ids == [1]
    assert "undecodable output message" in caplog.text


async def test_broken_output_fails_its_own_request_only(client: EngineClient, core: FakeCore) -> None:
    """In a message with one broken output, the others are delivered; the broken one's request fails and is aborted."""
    victim, neighbour = client.add([a_request("victim")]), client.add([a_request("neighbour")])
    outputs = [["victim", [1], None, None, None, 9], ["neighbour", [2]]]
    core.send_frames([msgspec.msgpack.encode([0, outputs])])
    assert (await neighbour.next())[0].new_token_ids == [2]
    (failed,) = await victim.next()
    assert (failed.finish_reason, failed.stop_reason) == (FinishReason.ERROR, "the core sent an undecodable output")
    assert [await core.receive_add(), await core.receive_add()]
    assert await core.receive_abort() == ["victim"]


async def test_reported_death_ends_everything(client: EngineClient, core: FakeCore) -> None:
    """After ENGINE_CORE_DEAD streams, utility calls and new requests raise Unavailable at once."""
    stream = client.add([a_request("a")])
    call = asyncio.ensure_future(client.call_utility("sleep", 1))
    core.emit_token("a", 1)
    core.report_death()
    async with asyncio.timeout(10):
        reason = await client.engines.lost
        assert (await stream.next())[0].new_token_ids == [1]
        for waiting in (stream.next(), call, client.call_utility("is_sleeping")):
            with pytest.raises(Unavailable, match=reason):
                await waiting
    with pytest.raises(Unavailable):
        client.add([a_request("b")])
    client.close_stream(stream)
    assert client.num_requests == 0


@pytest.mark.parametrize(
    ("payload", "cause"),
    [
        (b"\xc1", "EngineReadyResponse"),
        (msgspec.msgpack.encode([1, 2]), "EngineReadyResponse"),
        (msgspec.msgpack.encode({"max_model_len": 1}), "num_gpu_blocks"),
        (msgspec.msgpack.encode(msgspec.structs.replace(READY, num_gpu_blocks=-1)), "num_gpu_blocks: must be in"),
        (msgspec.msgpack.encode(msgspec.structs.replace(READY, max_model_len=2**63)), "max_model_len: must be in"),
    ],
)
async def test_core_whose_ready_response_is_none_is_lost_at_once(
    client: EngineClient, payload: bytes, cause: str
) -> None:
    """Nobody waits for a core that cannot be understood, nor counts with sizes that cannot be; the reason says what."""
    async with FakeCore() as core:
        core.connect(client.engines.addresses, payload)
        async with asyncio.timeout(10):
            assert cause in await client.engines.lost
    assert not client.engines.ready.done()


async def test_core_of_the_newer_wire(client: EngineClient) -> None:
    """A core that introduces itself as vLLM 0.33 is written to and read in its own layout: nobody needs to say so."""
    async with FakeCore(introduction(READY, WireVersion.V0_33, rank=0, dp_stats_address=None)) as core:
        core.connect(client.engines.addresses)
        await asyncio.wait_for(asyncio.shield(client.engines.ready), 10)
        stream = client.add([a_request("a")])
        _, frames = await core.receive_frames()
        assert len(msgspec.msgpack.decode(frames[0])) == 22
        output = EngineCoreOutput("a", [7], prefill_stats=PrefillStats(3, 3), num_nans_in_logits=1)
        message = shaped_outputs(EngineCoreOutputs(outputs=[output]), WireVersion.V0_33)
        core.send_frames([msgspec.msgpack.encode(message)])
        (received,) = await stream.next()
        assert received.prefill_stats == PrefillStats(3, 3)
        assert received.num_nans_in_logits == 1


async def test_silent_death_is_noticed(client: EngineClient) -> None:
    """A core whose connection closes is lost, without a word from it."""
    async with FakeCore() as core:
        core.connect(client.engines.addresses)
        await asyncio.wait_for(asyncio.shield(client.engines.ready), 10)
        stream = client.add([a_request("a")])
        assert await core.receive_add() == a_request("a")
    async with asyncio.timeout(10):
        with pytest.raises(Unavailable, match="closed the connection"):
            await stream.next()


async def test_last_words_are_read_before_the_core_is_lost(client: EngineClient) -> None:
    """Whatever a core has sent before its connection ends reaches the streams, however much of it there is."""
    async with FakeCore() as core:
        core.connect(client.engines.addresses)
        await asyncio.wait_for(asyncio.shield(client.engines.ready), 10)
        stream = client.add([a_request("a")])
        await core.receive_add()
        for token_id in range(5000):
            core.emit_token("a", token_id, FinishReason.LENGTH if token_id == 4999 else None)
    client.engines.lose_core_after_last_words(0, "its process ended")
    async with asyncio.timeout(10):
        assert await client.engines.lost == "its process ended"
    (output,) = await stream.next()
    assert (output.new_token_ids, output.finish_reason) == ([*range(5000)], FinishReason.LENGTH)


async def test_core_that_never_spoke_is_lost_at_once(client: EngineClient) -> None:
    """There are no last words to wait for."""
    client.engines.lose_core_after_last_words(0, "its process ended")
    assert client.engines.lost.done()


@pytest.mark.usefixtures("core")
async def test_core_that_is_gone_but_leaves_its_connection_open(client: EngineClient) -> None:
    """Somebody else may hold it: it is waited for a second, not forever."""
    stream = client.add([a_request("a")])
    client.engines.lose_core_after_last_words(0, "its process ended")
    assert not client.engines.lost.done()
    with pytest.raises(Unavailable, match="its process ended"):
        await asyncio.wait_for(stream.next(), 10)


async def test_vanished_host_is_noticed() -> None:
    """A core whose host falls silent with its connections open is lost after the time-out; a quiet core is not."""
    engines = Engines("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", heartbeat_timeout_s=1)
    client = EngineClient(engines)
    try:
        async with Cable(client.engines.addresses) as cable, FakeCore() as core:
            core.connect(cable.addresses)
            await asyncio.wait_for(asyncio.shield(client.engines.ready), 10)
            stream = client.add([a_request("a")])
            await core.receive_add()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(client.engines.lost), 2.5)
            cable.cut()
            with pytest.raises(Unavailable, match="closed the connection"):
                await asyncio.wait_for(stream.next(), 10)
    finally:
        engines.close()


async def test_stranger_is_not_the_core(client: EngineClient, core: FakeCore) -> None:
    """Another peer's coming, talking and going leave the core's connection alone."""
    async with FakeCore(rank=7) as stranger:
        stranger.connect(client.engines.addresses)
        stranger.send_frames([b"nonsense"])
    stream = client.add([a_request("a")])
    assert await core.receive() == (RequestType.ADD, a_request("a"))
    core.emit_token("a", 1)
    assert (await stream.next())[0].new_token_ids == [1]
    assert not client.engines.lost.done()


async def test_no_core_yet(client: EngineClient) -> None:
    """Before a core has connected a request is refused and leaves nothing in the table."""
    with pytest.raises(Unavailable):
        client.add([a_request("a")])
    assert client.num_requests == 0


async def test_utility_calls(client: EngineClient, core: FakeCore) -> None:
    """Answers reach their own caller, in whatever order; failures carry the core's words."""
    first = asyncio.ensure_future(client.call_utility("is_sleeping"))
    second = asyncio.ensure_future(client.call_utility("no_such_method", 1))
    calls = [await core.receive_call(), await core.receive_call()]
    assert [call.method for call in calls] == ["is_sleeping", "no_such_method"]
    core.answer(calls[1], failure="no such method")
    core.answer(calls[0], result=True)
    core.send(EngineCoreOutputs(utility_output=None))
    assert await first is True
    with pytest.raises(UtilityError, match="no such method"):
        await second


async def test_cancelled_utility_call_leaves_nothing(client: EngineClient, core: FakeCore) -> None:
    """A call that its caller gave up is forgotten, and its late answer ignored."""
    waiting = asyncio.ensure_future(client.call_utility("sleep"))
    call = await core.receive_call()
    waiting.cancel()
    core.answer(call)
    assert await asyncio.wait_for(answered(client, core), 10) == "yes"


async def answered(client: EngineClient, core: FakeCore) -> object:
    waiting = asyncio.ensure_future(client.call_utility("still_there"))
    core.answer(await core.receive_call(), result="yes")
    return await waiting


async def test_stats_are_kept(client: EngineClient, core: FakeCore) -> None:
    """The last scheduler state is kept; preemptions and prefix-cache counts are summed."""
    stream = client.add([a_request("a")])
    stats = SchedulerStats(num_running_reqs=3, prefix_cache_stats=PrefixCacheStats(queries=10, hits=4))
    preempted = EngineCoreEvent(EventType.PREEMPTED, 1.0)
    core.emit(EngineCoreOutput("a", [1], events=[preempted]), stats=stats)
    core.emit(EngineCoreOutput("a", [2], finish_reason=FinishReason.STOP), stats=stats)
    while stream.unfinished:
        await stream.next()
    kept = client.engines.all[0].stats
    assert (kept.scheduler.num_running_reqs, kept.num_preemptions) == (3, 1)
    assert (kept.num_prefix_cache_queries, kept.num_prefix_cache_hits) == (20, 8)


async def test_burst_is_read_to_its_end(client: EngineClient, core: FakeCore) -> None:
    """A thousand messages at once arrive complete and in order, merged into the one slot."""
    stream = client.add([a_request("a")])
    for token_id in range(1000):
        core.emit_token("a", token_id, FinishReason.LENGTH if token_id == 999 else None)
    received: list[int] = []
    while stream.unfinished:
        received += (await stream.next())[0].new_token_ids
    assert received == list(range(1000))
