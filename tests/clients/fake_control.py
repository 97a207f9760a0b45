"""A ControlService of adapters alone."""

from typing import Any

import grpc

from sluicegate.v1 import control_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import ControlServiceServicer


class FakeControlService(ControlServiceServicer):
    """Keeps names and paths."""

    def __init__(self) -> None:
        self.paths: dict[str, str] = {}

    def LoadLora(self, request: pb.LoadLoraRequest, context: Any) -> pb.LoadLoraResponse:
        if request.name in self.paths:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"the name {request.name!r} is taken")
        self.paths[request.name] = request.path
        return pb.LoadLoraResponse()

    def UnloadLora(self, request: pb.UnloadLoraRequest, context: Any) -> pb.UnloadLoraResponse:
        if self.paths.pop(request.name, None) is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no LoRA adapter {request.name!r} is loaded")
        return pb.UnloadLoraResponse()

    def ListLoras(self, request: pb.ListLorasRequest, context: Any) -> pb.ListLorasResponse:
        return pb.ListLorasResponse(loras=[pb.Lora(name=name, path=path) for name, path in self.paths.items()])
