"""Calls that machines make all the time."""

import pytest
from smg_grpc_proto.generated import vllm_engine_pb2

from service.calls.probes import _METHODS, is_probe
from sluicegate.third_party.inference import grpc_service_pb2
from sluicegate.v1 import control_service_pb2


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("/grpc.health.v1.Health/Watch", True),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", True),
        ("/vllm.grpc.engine.VllmEngine/HealthCheck", True),
        ("/inference.GRPCInferenceService/ServerReady", True),
        ("/vllm.grpc.engine.VllmEngine/Generate", False),
        ("/sluicegate.v1.ControlService/Drain", False),
        ("/sluicegate.v1.InferenceService/Embed", False),
    ],
)
def test_probes(method: str, expected: bool) -> None:
    """Health and load are asked all the time; work, and what operators do, is not."""
    assert is_probe(method) is expected


def test_all_of_them_are_there() -> None:
    """By the names of the contracts."""
    files = (vllm_engine_pb2, grpc_service_pb2, control_service_pb2)
    services = [service for file in files for service in file.DESCRIPTOR.services_by_name.values()]
    assert {f"/{service.full_name}/{method.name}" for service in services for method in service.methods} >= _METHODS
