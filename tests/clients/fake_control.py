"""A ControlService of adapters and of a load that grows."""

from collections.abc import Iterator
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

    def GetServerInfo(self, request: pb.GetServerInfoRequest, context: Any) -> pb.GetServerInfoResponse:
        return pb.GetServerInfoResponse(model="words", grpc_addresses=["127.0.0.1:1"])

    def WatchLoad(self, request: pb.WatchLoadRequest, context: Any) -> Iterator[pb.WatchLoadResponse]:
        """Three loads, at once: each with a hundred tokens more."""
        for num_looks in range(1, 4):
            yield pb.WatchLoadResponse(load=a_load(100 * num_looks))


def a_load(num_output_tokens: int, **changes: Any) -> pb.Load:
    """Of one core, with as many first tokens of 5 to 10 ms as a hundredth of its tokens."""
    latency = pb.Latency(bounds_s=[0.005, 0.01], counts=[0, num_output_tokens // 100, 0])
    rank = pb.RankLoad(num_running=2, is_answering=True, num_output_tokens=num_output_tokens)
    fields = {"num_running": 2, "num_output_tokens": num_output_tokens, "ranks": [rank], "kv_cache_usage": 0.25}
    return pb.Load(**{**fields, "time_to_first_token": latency, "inter_token_latency": latency, **changes})
