"""The requests that run, as a drain sees them."""

import asyncio

from core.wire.messages import FinishReason
from core.wire.sampling_params import SamplingParams
from service.events import Event, Finished
from service.generation_request import GenerationRequest
from service.generator import Generator
from service.server import GatewayServer
from tests.service.fake_core import FakeCore

A_REQUEST = GenerationRequest("r", [1, 2, 3], SamplingParams(max_tokens=5))


async def test_idle_when_the_last_event_is_handed_over(gateway: GatewayServer, core: FakeCore) -> None:
    """A drain does not wait for a client that does not read its last event; the request keeps its place meanwhile."""
    generator: Generator = gateway.generator
    with generator.start(A_REQUEST) as events:
        request_id = (await core.receive_add()).request_id
        idle = asyncio.ensure_future(generator.wait_idle())
        core.emit_token(request_id, 65)
        await anext(events)
        await anext(events)
        assert not idle.done()
        core.emit_token(request_id, 66, FinishReason.LENGTH)
        last: Event | None = None
        while not isinstance(last, Finished):
            last = await anext(events)
        assert await generator.drain(timeout_s=60) == 0
        await idle
        assert generator.abort(["r"]) == 0
        assert (generator.num_requests, generator.num_sequences) == (1, 1)
    assert (generator.num_requests, generator.num_sequences) == (0, 0)
    await generator.wait_idle()


async def test_not_idle_while_one_runs(gateway: GatewayServer, core: FakeCore) -> None:
    """Whoever leaves before the end leaves nothing behind, and what else runs is still waited for."""
    generator: Generator = gateway.generator
    with generator.start(A_REQUEST):
        with generator.start(GenerationRequest("s", [1], SamplingParams())):
            await core.receive_add()
        idle = asyncio.ensure_future(generator.wait_idle())
        await core.receive_add()
        assert not idle.done()
    await idle
