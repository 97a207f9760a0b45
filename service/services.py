"""What is served where: inference to everyone, control to the operators; health and reflection on both."""

from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from grpc_channelz.v1 import channelz
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from smg_grpc_proto.generated import vllm_engine_pb2
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import add_VllmEngineServicer_to_server

from service.servicers.control import ControlServicer
from service.servicers.health import Health
from service.servicers.inference import InferenceServicer
from service.servicers.kserve.servicer import KServeServicer
from service.servicers.reflection import add_reflection
from service.servicers.vllm_engine.servicer import VllmEngineServicer
from sluicegate.third_party.inference import grpc_service_pb2
from sluicegate.third_party.inference.grpc_service_pb2_grpc import add_GRPCInferenceServiceServicer_to_server
from sluicegate.v1 import control_service_pb2, inference_service_pb2
from sluicegate.v1.control_service_pb2_grpc import add_ControlServiceServicer_to_server
from sluicegate.v1.inference_service_pb2_grpc import add_InferenceServiceServicer_to_server

INFERENCE = inference_service_pb2.DESCRIPTOR.services_by_name["InferenceService"].full_name
CONTROL = control_service_pb2.DESCRIPTOR.services_by_name["ControlService"].full_name
KSERVE = grpc_service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
VLLM_ENGINE = vllm_engine_pb2.DESCRIPTOR.services_by_name["VllmEngine"].full_name
ROUTER_PROBES = frozenset(
    f"/{service}/HealthCheck"
    for service in (
        "mlx.grpc.engine.MlxEngine",
        "sglang.grpc.scheduler.SglangScheduler",
        "tokenspeed.grpc.scheduler.TokenSpeedScheduler",
        "trtllm.TrtllmService",
    )
)
"""What a router calls at every server to find out which contract it speaks. That these are not here is no error."""
_HEALTH = "grpc.health.v1.Health"
_CHANNELZ = "grpc.channelz.v1.Channelz"
_URGENT = frozenset(
    (
        *((_HEALTH, name) for name in ("Check", "List", "Watch")),
        *((VLLM_ENGINE, name) for name in ("HealthCheck", "Abort")),
        *((KSERVE, name) for name in ("ServerLive", "ServerReady", "ModelReady")),
    )
)
"""Service and method of what is answered at once, whatever else comes: a late answer is taken for a dead server."""


class _ByName:
    """``server`` for generated code to add services to: their methods are looked up by the name of each call.

    Registered beforehand as well, gRPC would wait for the next call of every one of them, and turn to all those waits
    again with each call that comes. So only those are that must not stand in line behind a thousand other calls.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server: Any = server  # Its stubs do not know registered methods.

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service_name: str, handlers: Mapping[str, Any]) -> None:
        """Of ``handlers`` the urgent ones. The others are found as generic handlers, as all are."""
        urgent = {name: handler for name, handler in handlers.items() if (service_name, name) in _URGENT}
        if urgent:
            self._server.add_registered_method_handlers(service_name, urgent)


def add_public_services(
    to: grpc.aio.Server,
    inference: InferenceServicer,
    vllm_engine: VllmEngineServicer,
    kserve: KServeServicer,
    health: Health,
) -> None:
    """What clients call."""
    server: Any = _ByName(to)
    add_InferenceServiceServicer_to_server(inference, server)
    add_VllmEngineServicer_to_server(vllm_engine, server)  # type: ignore[no-untyped-call]
    add_GRPCInferenceServiceServicer_to_server(kserve, server)
    add_HealthServicer_to_server(health, server)
    add_reflection(server, [INFERENCE, VLLM_ENGINE, KSERVE, _HEALTH])


def add_health_service(to: grpc.aio.Server, health: Health) -> None:
    """What probes call."""
    server: Any = _ByName(to)
    add_HealthServicer_to_server(health, server)
    add_reflection(server, [_HEALTH])


def add_admin_services(to: grpc.aio.Server, control: ControlServicer, health: Health) -> None:
    """What operators call."""
    server: Any = _ByName(to)
    add_ControlServiceServicer_to_server(control, server)
    add_HealthServicer_to_server(health, server)
    channelz.add_channelz_servicer(server)
    add_reflection(server, [CONTROL, _HEALTH, _CHANNELZ])
