"""Calls whose core is gone, against scripted cores over real sockets: they go on in another, or end, exactly once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from core.wire.messages import (
    REFUSED,
    EngineCoreEvent,
    EngineCoreOutput,
    EngineCoreRequest,
    EngineReadyResponse,
    EventType,
    FinishReason,
    PrefillStats,
)
from core.wire.resume import Resume, resume_of
from core.wire.sampling_params import SamplingParams
from service.cores.engines import Engines
from service.cores.suspects import STRIKES_OF_THE_GUILTY
from service.engine_client import EngineClient
from service.errors import Internal, Unavailable
from service.output_stream import OutputStream
from tests.service.fake_core import READY, FakeCore

OURS = msgspec.structs.replace(READY, resume_key="a")
FIRST = PrefillStats(3, 3)


def a_request(request_id: str, rank: int | None = None, params: SamplingParams | None = None) -> EngineCoreRequest:
    params = params or SamplingParams(temperature=0.0)
    return EngineCoreRequest(request_id, [1, 2, 3], None, params, None, 0.0, None, None, rank)


@asynccontextmanager
async def clients(folder: Path, num_engines: int, restart_wait_s: float = 60) -> AsyncIterator[EngineClient]:
    engines = Engines(f"ipc://{folder}/in", f"ipc://{folder}/out", num_engines, awaits_successors=True)
    try:
        yield EngineClient(engines, restart_wait_s=restart_wait_s)
    finally:
        engines.close()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EngineClient]:
    async with clients(tmp_path, 1) as client:
        yield client


@asynccontextmanager
async def core_of(client: EngineClient, ready: EngineReadyResponse = OURS, rank: int = 0) -> AsyncIterator[FakeCore]:
    """A core that has said HELLO, and whose ready response is read."""
    async with FakeCore(ready, rank) as core:
        engine = client.engines.all[rank]
        incarnation = engine.incarnation
        client.engines.expect_successor(rank)
        core.connect(client.engines.addresses)
        while engine.incarnation == incarnation and engine.refusal is None:  # noqa: ASYNC110 - a turn of the loop
            await asyncio.sleep(0)
        yield core


async def until_lost(client: EngineClient, rank: int = 0) -> None:
    async with asyncio.timeout(10):
        while client.engines.all[rank].is_alive:  # noqa: ASYNC110 - a turn of the loop
            await asyncio.sleep(0)


async def tokens_of(stream: OutputStream) -> list[int]:
    """To its end."""
    token_ids: list[int] = []
    async with asyncio.timeout(10):
        while True:
            for output in await stream.next():
                token_ids += output.new_token_ids
                if output.finished:
                    return token_ids


def told(request: EngineCoreRequest) -> Resume | None:
    return resume_of(request.sampling_params)


async def test_a_request_goes_on_in_the_next_core(client: EngineClient) -> None:
    """Under another name there, from the token where it was; its start is told once, its name here stays."""
    async with core_of(client) as core:
        stream = client.add([a_request("r")])
        assert await core.receive_add() == a_request("r")
        core.emit(EngineCoreOutput("r", [4], prefill_stats=FIRST))
        core.emit_token("r", 5)
    await until_lost(client)
    async with core_of(client) as core:
        again = await core.receive_add()
        assert (again.request_id, again.prompt_token_ids, told(again)) == ("r~1", [1, 2, 3], Resume([4, 5], "r"))
        events = [EngineCoreEvent(EventType.QUEUED, 1.0)]
        core.emit_token("r", 99)
        core.emit(EngineCoreOutput("r~1", [6], prefill_stats=FIRST, events=events))
        core.emit_token("r~1", 7, FinishReason.STOP)
        all_outputs: list[EngineCoreOutput] = []
        while not all_outputs or not all_outputs[-1].finished:
            all_outputs += await stream.next()
        assert [token_id for output in all_outputs for token_id in output.new_token_ids] == [4, 5, 6, 7]
        assert [output.prefill_stats for output in all_outputs] == [FIRST] + [None] * (len(all_outputs) - 1)
        assert all(output.request_id == "r" and not output.events for output in all_outputs)
    assert client.resumption.num_resumed == 1
    client.close_stream(stream)
    assert client.num_requests == 0


async def test_one_that_had_not_begun_starts_afresh(client: EngineClient) -> None:
    """All that a start tells is told."""
    async with core_of(client) as core:
        stream = client.add([a_request("r")])
        await core.receive_add()
    await until_lost(client)
    async with core_of(client) as core:
        assert told(await core.receive_add()) == Resume([], "r")
        core.emit(EngineCoreOutput("r~1", [4], prefill_stats=FIRST, finish_reason=FinishReason.STOP))
        (output,) = await stream.next()
        assert (output.request_id, output.prefill_stats) == ("r", FIRST)


async def test_only_what_has_not_ended_goes_on(client: EngineClient) -> None:
    """Not what the core or the caller has ended, what was aborted, or whose client has gone."""
    async with core_of(client) as core:
        several, aborted, left = (client.add([a_request(name) for name in names]) for names in ("abc", "d", "e"))
        core.emit_token("a", 4, FinishReason.LENGTH)
        await several.next()
        client.stop(several, "b", FinishReason.STOP)
    await until_lost(client)
    client.abort(["d"])
    client.close_stream(left)
    async with core_of(client) as core:
        new = client.add([a_request("new")])
        assert [(await core.receive_add()).request_id for _ in range(2)] == ["c~1", "new"]
        assert await tokens_of(aborted) == []
        client.abort(["c"])
        client.close_stream(new)
        assert [await core.receive_abort() for _ in range(2)] == [["c~1"], ["new"]]


async def test_a_new_call_waits_for_a_core(client: EngineClient) -> None:
    """It is in no core, so none is told when it is given up."""
    async with core_of(client):
        pass
    await until_lost(client)
    stream, given_up = client.add([a_request("r")]), client.add([a_request("s")])
    assert client.num_requests == 2
    client.close_stream(given_up)
    async with core_of(client) as core:
        assert await core.receive_add() == a_request("r")
        core.emit_token("r", 4, FinishReason.STOP)
        assert await tokens_of(stream) == [4]
    assert client.resumption.num_resumed == 0


@pytest.mark.parametrize("wait_s", [0.0, 0.05])
async def test_a_new_call_does_not_wait_for_ever(tmp_path: Path, wait_s: float) -> None:
    """As long as new calls may; the client is told when to come again."""
    async with clients(tmp_path, 1, wait_s) as client:
        async with core_of(client):
            pass
        await until_lost(client)
        with pytest.raises(Unavailable, match="is being replaced") as refused:
            await client.add([a_request("r")]).next()
        assert refused.value.reason == "CORE_RESTARTING"


async def test_another_rank_goes_on_at_once(tmp_path: Path) -> None:
    """Unless the request names its own, which is waited for."""
    async with clients(tmp_path, 2) as client, core_of(client, rank=1) as other:
        async with core_of(client, rank=0) as core:
            moved, kept = sorted((client.add([a_request(name)]) for name in "mn"), key=lambda stream: stream.rank)
            (name,) = moved.request_ids
            assert [moved.rank, kept.rank] == [0, 1], "the less busy one was chosen"
            pinned = client.add([a_request("p", 0)])
            for each in (name, "p"):
                core.emit_token(each, 4)
        await until_lost(client)
        assert client.engines.are_serving
        assert (await other.receive_add()).request_id == kept.request_ids[0]
        again = await other.receive_add()
        assert (again.request_id, told(again)) == (f"{name}~1", Resume([4], name))
        assert moved.rank == 1
        async with core_of(client, rank=0) as core:
            assert (await core.receive_add()).request_id == "p~1"
            other.emit_token(again.request_id, 5, FinishReason.STOP)
            core.emit_token("p~1", 6, FinishReason.STOP)
            assert [await tokens_of(stream) for stream in (moved, pinned)] == [[4, 5], [4, 6]]


async def test_a_core_that_leaves_its_place_to_another(client: EngineClient) -> None:
    """It is still there: what it says from then on reaches nobody."""
    async with core_of(client) as old:
        stream = client.add([a_request("r")])
        await old.receive_add()
        async with core_of(client) as new:
            assert (await new.receive_add()).request_id == "r~1"
            old.emit_token("r", 99)
            old.emit_token("r", 98, FinishReason.STOP)
            probe = client.add([a_request("probe")])
            old.emit_token("probe", 1, FinishReason.STOP)
            assert await tokens_of(probe) == [1], "all that the old one said is read"
            new.emit_token("r~1", 4, FinishReason.STOP)
            assert await tokens_of(stream) == [4]


async def test_given_up(client: EngineClient) -> None:
    """What had begun and what waits to begin end, once; so does what comes later."""
    async with core_of(client) as core:
        begun = client.add([a_request("a")])
        core.emit_token("a", 4)
    await until_lost(client)
    waiting = client.add([a_request("b")])
    assert not client.engines.lost.done()
    client.engines.give_up(0, "enough")
    assert (await begun.next())[0].new_token_ids == [4]
    for call in (begun.next(), waiting.next(), client.call_utility("is_sleeping")):
        with pytest.raises(Unavailable, match="enough") as error:
            await asyncio.wait_for(call, 10)
        assert error.value.reason == "CORE_LOST"
    with pytest.raises(Unavailable, match="enough"):
        client.add([a_request("c")])
    assert client.engines.lost.result() == "enough"


async def test_a_genuine_core(client: EngineClient) -> None:
    """Goes on with what it can; what it cannot ends UNAVAILABLE, unless its client takes other tokens."""
    drawn = SamplingParams(temperature=1.0)
    async with core_of(client, READY) as core:
        greedy, random = client.add([a_request("g")]), client.add([a_request("r", params=drawn)])
        rough = client.add([a_request("d", params=drawn)], may_differ=True)
        for name in "grd":
            core.emit_token(name, 4)
    await until_lost(client)
    async with core_of(client, READY) as core:
        requests = [await core.receive_add() for _ in range(2)]
        assert [request.request_id for request in requests] == ["g~1", "d~1"]
        assert [request.prompt_token_ids for request in requests] == [[1, 2, 3, 4]] * 2
        await random.next()
        with pytest.raises(Unavailable, match="drawn at random") as error:
            await random.next()
        assert error.value.reason == "CORE_LOST"
        for request in requests:
            core.emit_token(request.request_id, 5, FinishReason.STOP)
        assert [await tokens_of(stream) for stream in (greedy, rough)] == [[4, 5]] * 2
    assert (client.resumption.num_resumed, client.resumption.num_lost) == (2, 1)


async def test_a_core_with_less_memory(client: EngineClient) -> None:
    """Who does not fit any more ends UNAVAILABLE, by the core's word or by what it said of itself; others go on."""
    async with core_of(client) as core:
        long, refused, short = (client.add([a_request(name)]) for name in ("long", "refused", "short"))
        core.emit(
            *(EngineCoreOutput(name, [4] * count) for name, count in (("long", 40), ("refused", 2), ("short", 1)))
        )
    await until_lost(client)
    async with core_of(client, msgspec.structs.replace(OURS, num_gpu_blocks=3)) as core:
        assert [(await core.receive_add()).request_id for _ in range(2)] == ["refused~1", "short~1"]
        reason = f"{REFUSED}it does not fit"
        core.emit(EngineCoreOutput("refused~1", [], finish_reason=FinishReason.ERROR, stop_reason=reason))
        core.emit_token("short~1", 5, FinishReason.STOP)
        assert await tokens_of(short) == [4, 5]
        for stream, why in ((long, "too many for a core with room for 33"), (refused, "it does not fit")):
            await stream.next()
            with pytest.raises(Unavailable, match=why):
                await asyncio.wait_for(stream.next(), 10)


async def test_a_core_of_another_kind(client: EngineClient) -> None:
    """Less than what is served is sent away; another model goes on with nothing that began."""
    async with core_of(client) as core:
        stream = client.add([a_request("r")])
        core.emit_token("r", 4)
    await until_lost(client)
    async with core_of(client, msgspec.structs.replace(OURS, max_model_len=16)):
        assert "can less than" in (client.engines.all[0].refusal or "")
        assert not client.engines.are_serving
    async with core_of(client, msgspec.structs.replace(OURS, resume_key="b")):
        await stream.next()
        with pytest.raises(Unavailable, match="another model"):
            await asyncio.wait_for(stream.next(), 10)
    assert not client.engines.lost.done()


async def test_a_request_that_ends_its_cores(client: EngineClient) -> None:
    """Ends INTERNAL, which nobody tries again elsewhere; its neighbour goes on all the while."""
    async with core_of(client) as core:
        neighbour = client.add([a_request("good")])
        core.emit_token("good", 1)
        await neighbour.next()
        bad = client.add([a_request("bad")])
        await core.receive_add()
        await core.receive_add()
    for number in range(1, STRIKES_OF_THE_GUILTY):
        await until_lost(client)
        async with core_of(client) as core:
            assert (await core.receive_add()).request_id == f"good~{number}"
            core.emit_token(f"good~{number}", number + 1)
            await neighbour.next()
            assert (await core.receive_add()).request_id == f"bad~{number}"
    with pytest.raises(Internal, match="does not survive") as error:
        await asyncio.wait_for(bad.next(), 10)
    assert error.value.reason == "ENDS_THE_CORE"
    async with core_of(client) as core:
        again = await core.receive_add()
        assert told(again) == Resume([1, 2, 3, 4], "good")
        core.emit_token(again.request_id, 5, FinishReason.STOP)
        assert await tokens_of(neighbour) == [5]


async def test_what_cores_were_told_is_told_again(client: EngineClient) -> None:
    """Before the new one gets any request: adapters are loaded, and it is paused."""
    async with core_of(client) as core:
        stream = client.add([a_request("r")])
        await core.receive_add()
        call = asyncio.ensure_future(client.call_utility("pause_scheduler", "keep", True))
        core.answer(await core.receive_call())
        await call
    await until_lost(client)
    async with core_of(client) as core:
        assert not client.engines.are_serving
        waiting = client.add([a_request("s")])
        order = await core.receive_call()
        assert (order.method, order.args) == ("pause_scheduler", ["keep", True])
        core.answer(order, failure="no")
        assert [(await core.receive_add()).request_id for _ in range(2)] == ["r~1", "s"]
    for each in (stream, waiting):
        client.close_stream(each)


async def test_a_core_that_is_lost_while_it_is_told(client: EngineClient) -> None:
    """The next is told, and gets what waits."""
    async with core_of(client) as core:
        call = asyncio.ensure_future(client.call_utility("sleep", 1, "keep"))
        core.answer(await core.receive_call())
        await call
    await until_lost(client)
    stream = client.add([a_request("r")])
    async with core_of(client) as core:
        assert (await core.receive_call()).method == "sleep"
    await until_lost(client)
    async with core_of(client) as core:
        core.answer(await core.receive_call())
        assert (await core.receive_add()).request_id == "r"
    client.close_stream(stream)
