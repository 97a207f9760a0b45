"""Calls are let in by the key they bring: ``authorization: Bearer KEY`` in their metadata.

Health is answered without one: probes have none, and it tells nothing but whether there is a service. Methods that are
not there are left to gRPC, which says so; their names are the caller's to choose.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health_pb2
from grpc_status import rpc_status

from service.errors import Unauthenticated, to_rpc_status
from service.security.api_keys import ApiKeys
from service.security.caller import CALLER

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Context = grpc.aio.ServicerContext[Any, Any]

_OPEN_PREFIX = f"/{health_pb2.DESCRIPTOR.services_by_name['Health'].full_name}/"
_BEARER = re.compile(r"bearer +(?P<key>[!-~]+)", re.IGNORECASE)


class KeyCheck(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses calls without a key of ``keys`` before anything of them is read. Sets ``CALLER`` for the others."""

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys
        self.num_calls: Counter[str] = Counter()
        """Let in, by name."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if not handler or str(handler_call_details.method).startswith(_OPEN_PREFIX):
            return handler
        name = self._keys.name_of(_shown_key(handler_call_details.invocation_metadata))
        if name is None:
            return _REFUSAL
        self.num_calls[name] += 1
        CALLER.set(name)
        return handler


def _shown_key(metadata: Iterable[tuple[str, str | bytes]] | None) -> bytes:
    """Empty, which is nobody's, unless there is exactly one."""
    shown = [value for name, value in metadata or () if name == "authorization"]
    match = _BEARER.fullmatch(str(shown[0])) if len(shown) == 1 else None
    return match["key"].encode() if match else b""


async def _refuse(_requests: object, context: _Context) -> None:
    # The same whatever was wrong with it: nothing to learn from.
    error = Unauthenticated("a valid API key is needed, as metadata authorization: Bearer KEY")
    await context.abort_with_status(rpc_status.to_status(to_rpc_status(error)))  # type: ignore[attr-defined]


_REFUSAL: Handler = grpc.stream_stream_rpc_method_handler(_refuse)
"""For calls of any kind: one that takes a stream waits for no message."""
