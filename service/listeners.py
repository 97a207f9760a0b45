"""The gRPC servers of a gateway, one for each policy: whatever checks a key does so for all addresses of its server.

server      addresses             TLS                            keys
guarded     grpc_addresses        where configured               those of clients, where configured
plaintext   plaintext_addresses   never                          never
admin       admin_address         where configured, unless       those of operators, where configured
                                  only this machine can reach it
health      health_address        never                          never; nothing but health is there
"""

import asyncio
from dataclasses import replace
from itertools import chain

import grpc

from service.calls.interceptor import CallInterceptor
from service.config import ConnectionsConfig, ListenConfig, is_local
from service.listener import Listener, PortUse
from service.security.guards import Guards
from service.security.key_check import KeyCheck
from service.servicers.edge import ErrorEdge


class PublicListeners:
    """For clients. Add the services to ``servers``, ``bind`` and ``start``."""

    def __init__(
        self,
        listen: ListenConfig,
        connections: ConnectionsConfig,
        guards: Guards,
        calls: CallInterceptor,
        edge: ErrorEdge,
        port_use: PortUse = PortUse.ALONE,
    ) -> None:
        self._listen = listen
        with_keys, how = _interceptors(calls, guards.clients), (listen.socket_mode, edge, port_use)
        guarded = Listener((), with_keys, connections, guards.certificates, *how)
        self._addresses_by_listener = {guarded: listen.grpc_addresses}
        if listen.plaintext_addresses:
            plaintext = Listener((), [calls], connections, None, *how)
            self._addresses_by_listener[plaintext] = listen.plaintext_addresses

    @property
    def servers(self) -> list[grpc.aio.Server]:
        return [listener.server for listener in self._addresses_by_listener]

    @property
    def addresses(self) -> list[str]:
        """With the real ports once they are bound; plaintext ones come last."""
        return [address for listener in self._addresses_by_listener for address in listener.addresses]

    @property
    def bound(self) -> ListenConfig:
        """What was asked for, with the real ports."""
        guarded, *plaintext = ([*listener.addresses] for listener in self._addresses_by_listener)
        return replace(self._listen, grpc_addresses=(*guarded,), plaintext_addresses=(*chain(*plaintext),))

    def bind(self) -> None:
        """Listen on every address. Raises ListenError if that is not possible."""
        flags = "--grpc-address", "--plaintext-address"
        for flag, (listener, addresses) in zip(flags, self._addresses_by_listener.items(), strict=False):
            for address in addresses:
                listener.bind(address, flag)

    async def start(self) -> None:
        """Let calls in."""
        for server in self.servers:
            await server.start()

    async def stop(self, grace_s: float) -> None:
        """Take no new call, let those that run go on for so long, and leave no socket behind."""
        await asyncio.gather(*(listener.stop(grace_s) for listener in self._addresses_by_listener))


def admin_listener(
    listen: ListenConfig, connections: ConnectionsConfig, guards: Guards, calls: CallInterceptor, edge: ErrorEdge
) -> Listener:
    """For operators, not bound yet."""
    return Listener(
        [("grpc.enable_channelz", 1)],
        _interceptors(calls, guards.operators),
        connections,
        None if is_local(listen.admin_address) else guards.certificates,
        listen.socket_mode,
        edge,
    )


def health_listener(
    listen: ListenConfig, connections: ConnectionsConfig, calls: CallInterceptor, edge: ErrorEdge
) -> Listener:
    """For probes, not bound yet."""
    return Listener((), [calls], connections, None, listen.socket_mode, edge)


def _interceptors(calls: CallInterceptor, key_check: KeyCheck | None) -> list[grpc.aio.ServerInterceptor]:  # type: ignore[type-arg]
    """Calls that are refused for their key are counted too."""
    return [calls] if key_check is None else [calls, key_check]
