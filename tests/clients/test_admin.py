"""The clients of operators, against a server of their own."""

import pytest

from sluicegate_client import AdminClient, AlreadyExistsError, AsyncAdminClient, NotFoundError


def test_adapters_and_the_errors_a_caller_can_catch(admin_address: str) -> None:
    with AdminClient(admin_address) as client:
        client.load_lora("a", "/a", timeout=10)
        assert client.list_loras() == {"a": "/a"}
        with pytest.raises(AlreadyExistsError):
            client.load_lora("a", "/a")
        client.unload_lora("a")
        with pytest.raises(NotFoundError):
            client.unload_lora("a")


async def test_the_same_for_asyncio(admin_address: str) -> None:
    """Call by call."""
    async with AsyncAdminClient(admin_address) as client:
        await client.load_lora("a", "/a", timeout=10)
        assert await client.list_loras() == {"a": "/a"}
        with pytest.raises(AlreadyExistsError):
            await client.load_lora("a", "/a")
        await client.unload_lora("a")
        with pytest.raises(NotFoundError):
            await client.unload_lora("a")
