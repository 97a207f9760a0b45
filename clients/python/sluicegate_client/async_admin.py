"""What operators do, for asyncio; ``admin`` is its twin for plain Python."""

from collections.abc import AsyncIterator
from typing import Self

import grpc

from sluicegate.v1 import control_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate_client.admin import watch_request
from sluicegate_client.async_errors import readable_async_errors
from sluicegate_client.channel import DEFAULT_ADMIN_ADDRESS, ChannelOptions, key_metadata, open_async_channel


class AsyncAdminClient:
    """A connection to a server's admin address, made on first use, for one event loop.

    ``credentials`` None: plaintext. ``api_key``: an operator's. Calls raise the subclasses of ``SluicegateError``.
    ``timeout`` is the call's deadline in seconds (None: none).
    """

    def __init__(
        self,
        address: str = DEFAULT_ADMIN_ADDRESS,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        api_key: str | None = None,
        options: ChannelOptions = (),
    ) -> None:
        self._address = address
        self._metadata = key_metadata(api_key)
        self._channel = open_async_channel(address, credentials, options)
        self._stub = ControlServiceStub(self._channel)

    async def load_lora(self, name: str, path: str, *, timeout: float | None = None) -> None:
        """As ``AdminClient.load_lora``."""
        with readable_async_errors(self._address):
            await self._stub.LoadLora(
                pb.LoadLoraRequest(name=name, path=path), timeout=timeout, metadata=self._metadata
            )

    async def unload_lora(self, name: str, *, timeout: float | None = None) -> None:
        """As ``AdminClient.unload_lora``."""
        with readable_async_errors(self._address):
            await self._stub.UnloadLora(pb.UnloadLoraRequest(name=name), timeout=timeout, metadata=self._metadata)

    async def list_loras(self, *, timeout: float | None = None) -> dict[str, str]:
        """The folders of the adapters that are loaded, by name."""
        with readable_async_errors(self._address):
            response = await self._stub.ListLoras(pb.ListLorasRequest(), timeout=timeout, metadata=self._metadata)
        return {lora.name: lora.path for lora in response.loras}

    async def server_info(self, *, timeout: float | None = None) -> pb.GetServerInfoResponse:
        """As ``AdminClient.server_info``."""
        with readable_async_errors(self._address):
            return await self._stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=timeout, metadata=self._metadata)

    async def watch_load(self, interval_s: float = 1.0) -> AsyncIterator[pb.Load]:
        """As ``AdminClient.watch_load``."""
        with readable_async_errors(self._address):
            async for response in self._stub.WatchLoad(watch_request(interval_s), metadata=self._metadata):
                yield response.load

    async def close(self) -> None:
        """Cancels what still runs."""
        await self._channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()
