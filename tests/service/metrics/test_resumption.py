"""What is told of cores that went, and of the requests that they had."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.wire.messages import FinishReason
from service.calls.call import Call, running
from service.engine_client import EngineClient
from service.metrics.resumption import resumption_families
from tests.service.cores.test_resumption import a_request, clients, core_of, tokens_of, until_lost


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EngineClient]:
    async with clients(tmp_path, 1) as client:
        yield client


def told(client: EngineClient) -> dict[str, float]:
    families = resumption_families(client.engines, client.resumption)
    return {sample.name.removeprefix("sluicegate:"): sample.value for f in families for sample in f.samples}


async def test_a_core_that_is_replaced(client: EngineClient) -> None:
    """It is lost for good, whoever comes in its place; its request waits, goes on, and its call tells of that."""
    assert set(told(client).values()) == {0}
    with running(Call("/S/M")) as call:
        async with core_of(client) as core:
            stream = client.add([a_request("r")])
            await core.receive_add()
            core.emit_token("r", 5)
    await until_lost(client)
    assert told(client) == {
        "cores_lost_total": 1,
        "core_restarts_total": 0,
        "resumed_requests_total": 0,
        "unresumable_requests_total": 0,
        "calls_without_core": 1,
        "last_interruption_seconds": 0,
    }
    async with core_of(client) as core:
        core.emit_token((await core.receive_add()).request_id, 6, FinishReason.STOP)
        assert await tokens_of(stream) == [5, 6]
        client.close_stream(stream)
        assert 0 < client.engines.last_interruption_s < 60
        assert told(client) == {
            "cores_lost_total": 1,
            "core_restarts_total": 1,
            "resumed_requests_total": 1,
            "unresumable_requests_total": 0,
            "calls_without_core": 0,
            "last_interruption_seconds": client.engines.last_interruption_s,
        }
    assert [event for event, _ in call.events] == ["resumed"]
    assert [end.num_output_tokens for end in call.ends] == [2]
