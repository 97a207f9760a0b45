"""A service with methods of every kind, which answer with the name of their caller."""

from collections.abc import AsyncIterator

import grpc

from service.security.caller import CALLER

WHOAMI = "test.WhoAmI"


async def _once(_request: object, _context: object) -> bytes:
    return CALLER.get().encode()


async def _as_stream(_request: object, _context: object) -> AsyncIterator[bytes]:
    yield CALLER.get().encode()


def whoami_handler() -> grpc.GenericRpcHandler:
    methods = {
        "UnaryUnary": grpc.unary_unary_rpc_method_handler(_once),
        "UnaryStream": grpc.unary_stream_rpc_method_handler(_as_stream),
        "StreamStream": grpc.stream_stream_rpc_method_handler(_as_stream),
    }
    return grpc.method_handlers_generic_handler(WHOAMI, methods)


async def whoami(channel: grpc.aio.Channel, *metadata: tuple[str, str]) -> str:
    """What the service answers."""
    return (await channel.unary_unary(f"/{WHOAMI}/UnaryUnary")(b"", metadata=metadata, timeout=30)).decode()


def bearer(key: str) -> tuple[str, str]:
    return "authorization", f"Bearer {key}"
