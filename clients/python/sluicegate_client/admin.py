"""What operators do, at a server's admin address; ``async_admin`` is its twin for asyncio."""

from collections.abc import Iterator
from typing import Self

import grpc
from google.protobuf.duration_pb2 import Duration

from sluicegate.v1 import control_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate_client.channel import DEFAULT_ADMIN_ADDRESS, ChannelOptions, key_metadata, open_channel
from sluicegate_client.errors import readable_errors


class AdminClient:
    """A connection to a server's admin address, made on first use; any number of threads may share it.

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
        self._channel = open_channel(address, credentials, options)
        self._stub = ControlServiceStub(self._channel)

    def load_lora(self, name: str, path: str, *, timeout: float | None = None) -> None:
        """Loads the adapter in the folder ``path``, which is on the machine of the cores, for requests to name.

        Raises AlreadyExistsError for a name that is taken, SluicegateError with what is wrong with the adapter.
        """
        with readable_errors(self._address):
            self._stub.LoadLora(pb.LoadLoraRequest(name=name, path=path), timeout=timeout, metadata=self._metadata)

    def unload_lora(self, name: str, *, timeout: float | None = None) -> None:
        """No request can name it any more; returns when the last one that does has ended. Raises NotFoundError."""
        with readable_errors(self._address):
            self._stub.UnloadLora(pb.UnloadLoraRequest(name=name), timeout=timeout, metadata=self._metadata)

    def list_loras(self, *, timeout: float | None = None) -> dict[str, str]:
        """The folders of the adapters that are loaded, by name."""
        with readable_errors(self._address):
            response = self._stub.ListLoras(pb.ListLorasRequest(), timeout=timeout, metadata=self._metadata)
        return {lora.name: lora.path for lora in response.loras}

    def server_info(self, *, timeout: float | None = None) -> pb.GetServerInfoResponse:
        """What is served, and how."""
        with readable_errors(self._address):
            return self._stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=timeout, metadata=self._metadata)

    def watch_load(self, interval_s: float = 1.0) -> Iterator[pb.Load]:
        """How busy the server is, now and every ``interval_s`` seconds, in [0.1, 3600], until it stops."""
        with readable_errors(self._address):
            for response in self._stub.WatchLoad(watch_request(interval_s), metadata=self._metadata):
                yield response.load

    def close(self) -> None:
        """Cancels what still runs."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()


def watch_request(interval_s: float) -> pb.WatchLoadRequest:
    """For the load every ``interval_s`` seconds."""
    interval = Duration()
    interval.FromMilliseconds(round(interval_s * 1000))
    return pb.WatchLoadRequest(interval=interval)
