"""Requests that a core ends by itself: because it shuts down, or because another had it do so."""

import asyncio
from pathlib import Path

import pytest

from core.wire.messages import EngineCoreOutput, FinishReason
from core.wire.resume import Resume
from tests.service.cores.test_resumption import a_request, clients, core_of, tokens_of, told, until_lost
from tests.service.fake_core import FakeCore

ABORT = FinishReason.ABORT


def abort(core: FakeCore, *names: str) -> None:
    core.emit(*(EngineCoreOutput(name, [], finish_reason=ABORT) for name in names))


async def test_a_core_that_shuts_down(tmp_path: Path) -> None:
    """What it had goes on in the next, and what comes meanwhile waits for it."""
    async with clients(tmp_path, 1) as client:
        async with core_of(client) as core:
            begun, refused = client.add([a_request("a")]), client.add([a_request("b")])
            core.emit_token("a", 4)
            abort(core, "a", "b")
            for _ in range(2):
                await core.receive_add()
            core.answer(await core.receive_call(), failure="Server shutting down")
            while client.engines.are_serving:  # noqa: ASYNC110 - a turn of the loop
                await asyncio.sleep(0)
            new = client.add([a_request("c")])
        await until_lost(client)
        async with core_of(client) as core:
            requests = [await core.receive_add() for _ in range(3)]
            assert [request.request_id for request in requests] == ["a~1", "b~1", "c"]
            assert told(requests[0]) == Resume([4], "a")
            for request in requests:
                core.emit_token(request.request_id, 5, FinishReason.STOP)
            assert [await tokens_of(stream) for stream in (begun, refused, new)] == [[4, 5], [5], [5]]


async def test_a_core_that_was_told_to_by_another(tmp_path: Path) -> None:
    """It answers: then it is an end, as it is where no core can follow."""
    async with clients(tmp_path, 1) as client, core_of(client) as core:
        stream = client.add([a_request("a"), a_request("b")])
        abort(core, "a", "b")
        for _ in range(2):
            await core.receive_add()
        core.answer(await core.receive_call(), False)
        outputs = await asyncio.wait_for(stream.next(), 10)
        assert [(output.request_id, output.finish_reason) for output in outputs] == [("a", ABORT), ("b", ABORT)]
        assert client.engines.are_serving


@pytest.mark.parametrize(("method", "args"), [("pause_scheduler", ("abort", True)), ("sleep", (1, "abort"))])
async def test_a_core_that_was_told_to_from_here(tmp_path: Path, method: str, args: tuple[object, ...]) -> None:
    """Is not asked."""
    async with clients(tmp_path, 1) as client, core_of(client) as core:
        stream = client.add([a_request("a")])
        await core.receive_add()
        call = asyncio.ensure_future(client.call_utility(method, *args))
        order = await core.receive_call()
        abort(core, "a")
        assert [output.finish_reason for output in await asyncio.wait_for(stream.next(), 10)] == [ABORT]
        core.answer(order)
        await call


async def test_a_core_that_says_nothing_more(tmp_path: Path) -> None:
    """Its aborts are taken for what they say; if it is gone they are not."""
    async with clients(tmp_path, 1) as client:
        async with core_of(client) as core:
            ended, kept = client.add([a_request("a")]), client.add([a_request("b")])
            abort(core, "a")
            for _ in range(2):
                await core.receive_add()
            await core.receive_call()
            for _ in range(6):
                client.engines.beat()
            assert [output.finish_reason for output in await asyncio.wait_for(ended.next(), 10)] == [ABORT]
            abort(core, "b")
        await until_lost(client)
        async with core_of(client) as core:
            assert (await core.receive_add()).request_id == "b~1"
            core.emit_token("b~1", 4, FinishReason.STOP)
            assert await tokens_of(kept) == [4]
