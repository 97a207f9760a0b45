"""A server that answers as none should."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceServicer, add_InferenceServiceServicer_to_server


class OddService(InferenceServiceServicer):
    """Refuses ``Generate`` with ``details``, streams ``events``; a session's requests end for a reason unknown."""

    details = b""
    events: tuple[pb.GenerateStreamResponse, ...] = ()

    def Generate(self, request: Any, context: Any) -> Any:
        context.set_trailing_metadata((("grpc-status-details-bin", self.details),))
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")

    def GenerateStream(self, request: Any, context: Any) -> Iterator[pb.GenerateStreamResponse]:
        yield from self.events

    def GenerateMultiplexed(self, commands: Any, context: Any) -> Iterator[pb.MultiplexedResponse]:
        for command in commands:
            ended = pb.Finished(finish_reason=99)  # type: ignore[arg-type]  # Of a version that is to come.
            yield pb.MultiplexedResponse(
                events=[pb.GenerateStreamResponse(request_id=command.generate.request_id, finished=ended)]
            )


@contextmanager
def odd_server(service: OddService) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    add_InferenceServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()
