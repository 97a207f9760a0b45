"""Large messages are decoded one at a time."""

import asyncio

import pytest

from service.admission.large_messages import LARGE_FROM_BYTES, LargeMessages

LARGE = bytes(LARGE_FROM_BYTES)


async def test_others_run_in_between() -> None:
    """Between one large message and the next everything else has its turn; small ones do not wait."""
    messages, order = LargeMessages(), list[str]()

    def decode(message: bytes) -> int:
        order.append("large" if message is LARGE else "small")
        return len(message)

    async def probe() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        order.append("probe")

    results = await asyncio.gather(
        messages.decode(decode, LARGE),
        probe(),
        messages.decode(decode, LARGE),
        messages.decode(decode, LARGE),
        messages.decode(decode, b"x"),
    )
    assert results == [LARGE_FROM_BYTES, None, LARGE_FROM_BYTES, LARGE_FROM_BYTES, 1]
    assert order[:2] == ["large", "small"]
    assert sorted(order) == ["large"] * 3 + ["probe", "small"]


async def test_one_that_does_not_decode_holds_nobody_up() -> None:
    """Its error is raised, and the next has its turn."""
    messages = LargeMessages()
    with pytest.raises(ValueError, match="broken"):
        await messages.decode(lambda _: (_ for _ in ()).throw(ValueError("broken")), LARGE)
    assert await messages.decode(len, LARGE) == LARGE_FROM_BYTES
