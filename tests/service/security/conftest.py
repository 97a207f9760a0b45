"""The servers of a gateway without the gateway: health, and one method that says whose key it was called with."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import pytest
import trustme
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server

from service.calls.access_log import AccessLog
from service.calls.interceptor import CallInterceptor
from service.config import ConnectionsConfig, ListenConfig, SecurityConfig
from service.listeners import PublicListeners, admin_listener
from service.security.guards import Guards
from service.servicers.edge import ErrorEdge
from service.servicers.health import Health
from tests.service.security.whoami import WHOAMI, whoami_handler


@dataclass(frozen=True)
class Served:
    """Where, and with which guards."""

    grpc_addresses: list[str]
    admin_address: str
    guards: Guards


Serve = Callable[[ListenConfig, SecurityConfig], AbstractAsyncContextManager[Served]]


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def serve() -> Serve:
    @asynccontextmanager
    async def served(listen: ListenConfig, security: SecurityConfig) -> AsyncIterator[Served]:
        limits = ConnectionsConfig()
        guards, calls, health = Guards(security), CallInterceptor([AccessLog()]), Health([WHOAMI])
        shared = guards, calls, ErrorEdge()
        public, admin = PublicListeners(listen, limits, *shared), admin_listener(listen, limits, *shared)
        try:
            for server in (*public.servers, admin.server):
                add_HealthServicer_to_server(health, server)
                server.add_generic_rpc_handlers((whoami_handler(),))
            public.bind()
            admin.bind(listen.admin_address)
            await public.start()
            await admin.server.start()
            yield Served(public.addresses, admin.addresses[0], guards)
        finally:
            await public.stop(0)
            await admin.stop(0)

    return served
