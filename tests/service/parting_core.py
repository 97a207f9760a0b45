"""``python -m tests.service.parting_core``: a core that gives one request all its tokens at once, and is gone."""

import asyncio
import os
import sys

import msgspec

from core.wire.messages import FinishReason
from tests.service.fake_core import READY, FakeCore


async def main(arguments: list[str]) -> None:
    address = arguments[arguments.index("--handshake-address") + 1]
    async with FakeCore(msgspec.structs.replace(READY, max_model_len=100_000)) as core:
        await core.shake_hands(address, local=True)
        request = await core.receive_add()
        assert request.sampling_params is not None
        num_tokens = request.sampling_params.max_tokens
        assert num_tokens is not None
        for position in range(1, num_tokens + 1):
            core.emit_token(request.request_id, 97, FinishReason.LENGTH if position == num_tokens else None)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv))
