"""What is served where."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.servicers.health import Health
from service.services import INFERENCE, add_health_service


class Registry:
    """A server that notes what is added to it."""

    def __init__(self) -> None:
        self.generic: list[Any] = []
        self.registered: dict[str, set[str]] = {}

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        self.generic += handlers

    def add_registered_method_handlers(self, service_name: str, handlers: Mapping[str, Any]) -> None:
        self.registered[service_name] = set(handlers)


def test_methods_are_found_by_name_and_grpc_waits_by_itself_only_for_those_that_are_urgent() -> None:
    registry: Any = Registry()
    add_health_service(registry, Health([INFERENCE]))
    names = {handler.service_name() for handler in registry.generic}
    assert {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} < names
    assert registry.registered == {"grpc.health.v1.Health": {"Check", "List", "Watch"}}
