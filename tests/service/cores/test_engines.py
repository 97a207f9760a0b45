"""Several cores behind one pair of sockets: who is there, who is gone, who is silent, who comes in whose place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from core.wire.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from core.wire.sampling_params import SamplingParams
from core.wire.stats import SchedulerStats
from service.cores.engines import Engines
from service.cores.pulse import BEATS_PER_TIMEOUT
from service.cores.utility_calls import UtilityError
from service.engine_client import EngineClient
from service.errors import Unavailable
from tests.service.fake_core import READY, FakeCore

Cores = list[FakeCore]


def a_request(request_id: str, rank: int | None = None) -> EngineCoreRequest:
    return EngineCoreRequest(request_id, [1, 2, 3], None, SamplingParams(), None, 0.0, None, None, rank)


async def speak(client: EngineClient, core: FakeCore, rank: int, stats: SchedulerStats | None = None) -> None:
    """Return when something that ``core`` said has been heard, and all that it said before."""
    stream = client.add([a_request("chat", rank)])
    await core.receive_add()
    core.emit(EngineCoreOutput("chat", [1], finish_reason=FinishReason.STOP), stats=stats)
    await asyncio.wait_for(stream.next(), 10)
    client.close_stream(stream)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EngineClient]:
    engines = Engines(f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out", num_engines=2)
    yield EngineClient(engines)
    engines.close()


@pytest.fixture
async def cores(client: EngineClient) -> AsyncIterator[Cores]:
    async with AsyncExitStack() as stack:
        cores = [await stack.enter_async_context(FakeCore(rank=rank)) for rank in (0, 1)]
        for core in cores:
            core.connect(client.engines.addresses)
        async with asyncio.timeout(10):
            ready = await client.engines.ready
        assert (ready.data_parallel_size, ready.num_gpu_blocks) == (2, 202)
        yield cores


async def test_requests_and_aborts_go_to_their_rank(client: EngineClient, cores: Cores) -> None:
    """Outputs of both come to their streams, and an abort to the core that has the request."""
    streams = [client.add([a_request(f"r{rank}", rank)]) for rank in (0, 1)]
    for rank, core in enumerate(cores):
        assert (await core.receive_add()).request_id == f"r{rank}"
        core.emit_token(f"r{rank}", 65 + rank)
        assert (await streams[rank].next())[0].new_token_ids == [65 + rank]
        assert client.num_requests_at(rank) == 1
    client.abort(["r1", "r0"])
    for rank, core in enumerate(cores):
        assert await core.receive_abort() == [f"r{rank}"]


async def test_the_less_busy_core_gets_the_request(client: EngineClient, cores: Cores) -> None:
    """By its last statistics, and by what was sent to it since."""
    await speak(client, cores[1], 1, SchedulerStats())
    await speak(client, cores[0], 0, SchedulerStats(num_waiting_reqs=1))
    assert [client.add([a_request(name)]).rank for name in "ab"] == [1, 0]
    for core in cores:
        await core.receive_add()


async def test_sequences_of_one_request_stay_together(client: EngineClient, cores: Cores) -> None:
    """They share the blocks of their prompt."""
    stream = client.add([a_request(f"{index}_r") for index in range(5)])
    for index in range(5):
        assert (await cores[stream.rank].receive_add()).request_id == f"{index}_r"


async def test_a_lost_core_takes_its_own_along(client: EngineClient, cores: Cores) -> None:
    """Its streams and calls fail at once; those of the other go on, and it alone is chosen from then on."""
    lost, kept = client.add([a_request("a", 0)]), client.add([a_request("b", 1)])
    call = asyncio.ensure_future(client.call_utility("sleep", 1))
    await cores[1].receive_add()
    await cores[1].receive_call()
    cores[0].close()
    async with asyncio.timeout(10):
        for waiting in (lost.next(), call):
            with pytest.raises(Unavailable, match="closed the connection"):
                await waiting
    assert client.engines.lost.result() == "rank 0: it closed the connection"
    cores[1].emit_token("b", 7, FinishReason.STOP)
    assert (await kept.next())[0].new_token_ids == [7]
    assert {client.add([a_request(str(i))]).rank for i in range(4)} == {1}
    with pytest.raises(Unavailable, match="closed the connection"):
        client.add([a_request("c", 0)])


async def test_a_death_notice_bears_no_name(client: EngineClient, cores: Cores) -> None:
    """Both cores are asked; the one that answers lives, the other is lost."""
    lost, kept = client.add([a_request("a", 0)]), client.add([a_request("b", 1)])
    await cores[1].receive_add()
    cores[0].report_death()
    cores[1].answer(await cores[1].receive_call())
    async with asyncio.timeout(10):
        with pytest.raises(Unavailable, match="fatal error"):
            await lost.next()
    cores[1].emit_token("b", 7)
    assert (await kept.next())[0].new_token_ids == [7]


async def test_calls_go_to_all(client: EngineClient, cores: Cores) -> None:
    """They are answered when all have answered: yes if all say yes, and failed by the first that fails."""
    for answers, expected in (((True, True), True), ((True, False), False)):
        call = asyncio.ensure_future(client.call_utility("reset_prefix_cache", False, False))
        for core, answer in zip(cores, answers, strict=True):
            assert not call.done()
            core.answer(await core.receive_call(), answer)
        assert await call is expected
    call = asyncio.ensure_future(client.call_utility("sleep", 1))
    cores[1].answer(await cores[1].receive_call(), failure="too tired")
    with pytest.raises(UtilityError, match="too tired"):
        await call


async def test_a_core_that_does_not_answer(client: EngineClient, cores: Cores) -> None:
    """Is asked once, then passed over until it speaks again; its calls fail, its streams wait. The other serves."""
    told: list[bool] = []
    client.engines.on_service = told.append
    stream = client.add([a_request("a", 0)])
    await cores[0].receive_add()
    call = asyncio.ensure_future(client.call_rank(0, "sleep", 1))
    assert (await cores[0].receive_call()).method == "sleep"
    for _ in range(BEATS_PER_TIMEOUT + 1):
        client.engines.beat()
        await speak(client, cores[1], 1)
    assert told == []
    with pytest.raises(Unavailable, match="does not answer"):
        await asyncio.wait_for(call, 10)
    for refused in (lambda: client.add([a_request("b", 0)]), lambda: client.add([a_request("c", 0)])):
        with pytest.raises(Unavailable) as silent:
            refused()
        assert silent.value.reason == "CORE_SILENT"
    assert client.add([a_request("d")]).rank == 1
    question = await cores[0].receive_call()
    assert question.method == "is_scheduler_paused"
    cores[0].answer(question, False)
    cores[0].emit_token("a", 7)
    assert (await stream.next())[0].new_token_ids == [7]
    assert told == []


async def test_no_core_that_answers(client: EngineClient, cores: Cores) -> None:
    """Is told once, and its end as well."""
    told: list[bool] = []
    client.engines.on_service = told.append
    for _ in range(BEATS_PER_TIMEOUT + 2):
        client.engines.beat()
    assert told == [False]
    cores[1].answer(await cores[1].receive_call(), False)
    stream = client.add([a_request("a", 1)]) if client.engines.are_serving else None
    while stream is None:
        await asyncio.sleep(0)
        stream = client.add([a_request("a", 1)]) if client.engines.are_serving else None
    assert told == [False, True]


async def test_a_thief_gets_nothing(client: EngineClient, cores: Cores) -> None:
    """Whoever connects with the identity of a core that is there, and says it is ready, is not heard."""
    async with FakeCore(rank=0) as thief:
        other = client.add([a_request("other", 1)])
        thief.connect(client.engines.addresses)
        thief.emit_token("other", 1)
        await other.next()
        stream = client.add([a_request("a", 0)])
        assert (await cores[0].receive_add()).request_id == "a"
        cores[0].emit_token("a", 7)
        assert (await stream.next())[0].new_token_ids == [7]
    assert not client.engines.lost.done()


async def test_a_successor_takes_over(client: EngineClient, cores: Cores, caplog: pytest.LogCaptureFixture) -> None:
    """After HELLO a core may take the place of one that is there: what ran there fails, what comes next is its own.

    Two that should have had ranks of their own look the same, so the log says what to do then.
    """
    lost, kept = client.add([a_request("a", 0)]), client.add([a_request("b", 1)])
    client.engines.expect_successor(0)
    async with FakeCore(rank=0) as successor:
        successor.connect(client.engines.addresses)
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable, match="another took its place"):
                await lost.next()
        assert "another core says that it is rank 0" in caplog.text
        assert "--data-parallel-rank" in caplog.text
        stream = client.add([a_request("c", 0)])
        assert (await successor.receive_add()).request_id == "c"
        successor.emit_token("c", 7)
        cores[1].emit_token("b", 8)
        assert (await stream.next())[0].new_token_ids == [7]
        assert (await kept.next())[0].new_token_ids == [8]
        assert not client.engines.lost.done()


async def test_a_successor_of_one_that_reported_its_death(client: EngineClient, cores: Cores) -> None:
    """Nobody else is taken for the dead one, though it has not answered yet that it is not."""
    kept = client.add([a_request("b", 1)])
    await cores[1].receive_add()
    cores[0].report_death()
    async with asyncio.timeout(10):
        await cores[1].receive_call()
    has_come = asyncio.Event()
    client.engines.on_news = lambda _engine: has_come.set()
    client.engines.expect_successor(0)
    async with FakeCore(rank=0) as successor:
        successor.connect(client.engines.addresses)
        async with asyncio.timeout(10):
            await has_come.wait()
        await speak(client, successor, 0)
        cores[1].emit_token("b", 8)
        assert (await kept.next())[0].new_token_ids == [8]
        assert not client.engines.lost.done()


async def test_a_lesser_successor_is_none(client: EngineClient, cores: Cores) -> None:
    """One that cannot do what is served loses the place."""
    client.engines.expect_successor(1)
    async with FakeCore(msgspec.structs.replace(READY, max_model_len=16), rank=1) as successor:
        successor.connect(client.engines.addresses)
        async with asyncio.timeout(10):
            assert "can less than" in await client.engines.lost
    assert len(cores) == 2


async def test_one_that_comes_unasked_in_the_place_of_one_that_left(client: EngineClient, cores: Cores) -> None:
    """The requests of the one that left are not left waiting."""
    stream = client.add([a_request("a", 0)])
    cores[0].close()
    async with FakeCore(rank=0) as other:
        other.connect(client.engines.addresses)
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable):
                await stream.next()


async def test_a_core_that_goes_when_nobody_reads_any_more(client: EngineClient, cores: Cores) -> None:
    """Its hang-up may be noticed when the sockets are closed: then there are no last words to wait for."""
    assert len(cores) == 2
    client.engines.close()
    client.engines.lose_core_after_last_words(0, "it closed the connection")
    async with asyncio.timeout(10):
        assert await client.engines.lost == "rank 0: it closed the connection"
