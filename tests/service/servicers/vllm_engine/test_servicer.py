"""What no channel can time: an abort that comes while its request is still being read."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from service.gate import Backend, Gate
from service.served_model import ServedModel
from service.servicers.health import Health
from service.servicers.vllm_engine.model_info import ModelCard
from service.servicers.vllm_engine.servicer import VllmEngineServicer
from service.text.text_threads import TextThreads

CARD = ModelCard("", Path(), "", (), 0, 0)
LONG = [5000] * 20_000


class HeldThreads(TextThreads):
    """Reads when it is let."""

    def __init__(self) -> None:
        super().__init__(1)
        self.has_begun, self.may_read = asyncio.Event(), asyncio.Event()

    async def run(self, num_bytes: int, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.has_begun.set()
        await self.may_read.wait()
        return await super().run(num_bytes, work, *args, **kwargs)


class IdleGenerator:
    """Has room, and is asked to run nothing."""

    def check_room(self, num_sequences: int) -> None: ...

    def abort(self, _: object) -> int:
        return 0


async def test_an_abort_while_a_request_is_read(smollm2: ServedModel) -> None:
    """It never runs, and every sequence is answered as aborted."""
    health, threads = Health([]), HeldThreads()
    gate = Gate(health)
    gate.open(Backend(smollm2, cast(Any, None), cast(Any, None), cast(Any, IdleGenerator()), cast(Any, None)))
    servicer = VllmEngineServicer(gate, health, threads, CARD)
    params = pb.SamplingParams(n=2, truncate_prompt_tokens=7)
    request = pb.GenerateRequest(
        request_id="r", tokenized=pb.TokenizedInput(input_ids=LONG), sampling_params=params, stream=True
    )

    async def answered() -> list[pb.GenerateComplete]:
        messages = servicer.Generate(request, cast(Any, None))
        return [pb.GenerateResponse.FromString(message).complete async for message in messages]

    answering = asyncio.ensure_future(answered())
    async with asyncio.timeout(20):
        await threads.has_begun.wait()
        await servicer.Abort(pb.AbortRequest(request_ids=["r"]), cast(Any, None))
        threads.may_read.set()
        completes = await answering
    assert completes == [pb.GenerateComplete(index=i, finish_reason="abort", prompt_tokens=7) for i in (0, 1)]
