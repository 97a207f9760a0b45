"""The requests that run, as a drain sees them."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from core.wire.messages import FinishReason
from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor
from service.engine_client import EngineClient
from service.engines import Engines
from service.errors import QueueFull, ResourceExhausted
from service.events import Event, Finished
from service.generation_request import GenerationRequest
from service.generator import Generator, GeneratorLimits
from service.models import ModelFiles
from service.server import GatewayServer
from service.tokenizer import Tokenizer
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


def rows_request(request_id: str, num_tokens: int, n: int = 1) -> GenerationRequest:
    """Eight bytes a token."""
    rows = Tensor(np.zeros((num_tokens, 2), np.float32))
    return GenerationRequest(request_id, [], SamplingParams(n=n), prompt_embeds=rows)


async def test_embeddings_of_live_requests_are_bounded(byte_model: ModelFiles, tmp_path: Path) -> None:
    """Together, each sequence counting; one that could never fit is told so; who sends tokens does not notice."""
    engines = Engines(f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out")
    tokenizer = Tokenizer.load(byte_model.tokenizer_folder)
    generator = Generator(EngineClient(engines), tokenizer, GeneratorLimits(8, 100, max_embeds_bytes=80))
    async with FakeCore() as core:
        core.connect(engines.addresses)
        await asyncio.wait_for(engines.ready, 10)
        with (
            pytest.raises(ResourceExhausted, match="the request alone has 96"),
            generator.start(rows_request("large", 4, n=3)),
        ):
            pass
        with generator.start(rows_request("live", 6)):
            with pytest.raises(QueueFull, match="hold 48, the request has 40"), generator.start(rows_request("r", 5)):
                pass
            with generator.start(rows_request("fits", 4)), generator.start(A_REQUEST):
                assert generator.num_requests == 3
        with generator.start(rows_request("again", 10)):
            assert generator.num_requests == 1
    engines.close()
