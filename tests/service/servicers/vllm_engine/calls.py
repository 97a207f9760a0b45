"""Short ways to call VllmEngine in tests."""

import asyncio
from collections.abc import AsyncIterable, Sequence
from typing import Any

from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from core.wire.messages import FinishReason
from tests.service.fake_core import FakeCore


def asks(
    request_id: str = "r", prompt: bytes = b"hi", stream: bool = True, **sampling_params: Any
) -> pb.GenerateRequest:
    """A request for more of ``prompt``, whose bytes are its tokens."""
    tokenized = pb.TokenizedInput(input_ids=prompt)
    return pb.GenerateRequest(
        request_id=request_id, tokenized=tokenized, stream=stream, sampling_params=pb.SamplingParams(**sampling_params)
    )


async def messages_of(stream: AsyncIterable[pb.GenerateResponse]) -> list[pb.GenerateStreamChunk | pb.GenerateComplete]:
    """All that comes, out of its envelopes."""
    async with asyncio.timeout(20):
        return [getattr(response, str(response.WhichOneof("response"))) async for response in stream]


def text_of(messages: Sequence[pb.GenerateStreamChunk | pb.GenerateComplete], index: int = 0) -> bytes:
    """The tokens of the chunks of one sequence, joined."""
    chunks = (message for message in messages if isinstance(message, pb.GenerateStreamChunk) and message.index == index)
    return b"".join(bytes(chunk.token_ids) for chunk in chunks)


def say(core: FakeCore, core_id: str, text: bytes, finish: FinishReason | None = FinishReason.LENGTH) -> None:
    """The core generates ``text``, a token a message."""
    for position, byte in enumerate(text, start=1):
        core.emit_token(core_id, byte, finish if position == len(text) else None)
