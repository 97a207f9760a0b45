"""inference.GRPCInferenceService: what clients of KServe and Triton call."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

from grpc.aio import ServicerContext

from service.errors import NotFound, ServiceError, Unimplemented, shown
from service.events import Started
from service.gate import Gate
from service.servicers.edge import as_failure
from service.servicers.health import Health
from service.servicers.intake import Intake
from service.servicers.kserve.infer_request import (
    MAX_ID_BYTES,
    VERSION,
    InferRequest,
    check_version,
    read_infer_request,
    wants_empty_final_response,
)
from service.servicers.kserve.infer_responses import FINAL_RESPONSE, InferResponses, empty_response
from service.servicers.kserve.model_card import model_config, model_metadata, server_metadata
from service.servicers.kserve.multiplexer import Multiplexer
from service.servicers.kserve.statistics import InferStatistics
from service.servicers.responses import is_small
from service.text.text_threads import TextThreads
from service.wakeup import Wakeup
from sluicegate.third_party.inference import grpc_service_pb2 as pb
from sluicegate.third_party.inference.grpc_service_pb2_grpc import GRPCInferenceServiceServicer

_Context = ServicerContext[Any, Any]
_CHOSEN = "it is set when the server starts"
_IN_REQUESTS = "tensors come with their request"


def _echoed(name: str) -> str:
    """Empty if it is longer than a name may be: an error may wait long to be read."""
    return name if len(name.encode()) <= MAX_ID_BYTES else ""


def _not_served(method: str, why: str) -> Any:
    """A servicer method for an rpc of the contract that this server has no use for."""

    async def unimplemented(self: object, request: object, context: _Context) -> None:  # noqa: ARG001
        raise Unimplemented(f"{method} is not served: {why}")

    return unimplemented


class KServeServicer(GRPCInferenceServiceServicer):
    """Requests run beside those of the other services. Their ids are echoed and need not be unique."""

    def __init__(
        self, gate: Gate, health: Health, text_threads: TextThreads, min_flush_interval_s: float = 0.0
    ) -> None:
        """``min_flush_interval_s``: responses of a stream are sent no oftener, but for the first and the last."""
        self._gate = gate
        self._health = health
        self._intake = Intake(gate, text_threads)
        self._min_flush_interval_s = min_flush_interval_s
        self._statistics = InferStatistics()

    async def ServerLive(self, request: pb.ServerLiveRequest, context: _Context) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: pb.ServerReadyRequest, context: _Context) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._health.is_serving)

    async def ModelReady(self, request: pb.ModelReadyRequest, context: _Context) -> pb.ModelReadyResponse:
        try:
            self._check_model(request.name, request.version)
        except ServiceError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=self._health.is_serving)

    async def ServerMetadata(self, request: pb.ServerMetadataRequest, context: _Context) -> pb.ServerMetadataResponse:
        return server_metadata()

    async def ModelMetadata(self, request: pb.ModelMetadataRequest, context: _Context) -> pb.ModelMetadataResponse:
        self._check_model(request.name, request.version)
        return model_metadata(request.name)

    async def ModelConfig(self, request: pb.ModelConfigRequest, context: _Context) -> pb.ModelConfigResponse:
        self._check_model(request.name, request.version)
        return pb.ModelConfigResponse(config=model_config(request.name))

    async def ModelStatistics(
        self, request: pb.ModelStatisticsRequest, context: _Context
    ) -> pb.ModelStatisticsResponse:
        if request.name:
            self._check_model(request.name, request.version)
        name = request.name or self._gate.look_in().model.name
        return pb.ModelStatisticsResponse(model_stats=[self._statistics.of(name)])

    async def RepositoryIndex(
        self, request: pb.RepositoryIndexRequest, context: _Context
    ) -> pb.RepositoryIndexResponse:
        model = self._gate.look_in().model
        names = [model.name, *sorted(model.adapters)]
        index = pb.RepositoryIndexResponse.ModelIndex
        return pb.RepositoryIndexResponse(models=[index(name=name, version=VERSION, state="READY") for name in names])

    async def ModelInfer(self, request: pb.ModelInferRequest, context: _Context) -> pb.ModelInferResponse:
        with self._statistics.one():
            infer_request = await self._read(request, may_stream=False)
            async with aclosing(self._responses(infer_request)) as responses:
                return await anext(responses)

    async def ModelStreamInfer(
        self, request_iterator: AsyncIterator[pb.ModelInferRequest], context: _Context
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        async with aclosing(Multiplexer(self._answer).responses(request_iterator)) as responses:
            async for response in responses:
                yield response

    RepositoryModelLoad = _not_served("RepositoryModelLoad", _CHOSEN)
    RepositoryModelUnload = _not_served("RepositoryModelUnload", _CHOSEN)
    SystemSharedMemoryStatus = _not_served("SystemSharedMemoryStatus", _IN_REQUESTS)
    SystemSharedMemoryRegister = _not_served("SystemSharedMemoryRegister", _IN_REQUESTS)
    SystemSharedMemoryUnregister = _not_served("SystemSharedMemoryUnregister", _IN_REQUESTS)
    CudaSharedMemoryStatus = _not_served("CudaSharedMemoryStatus", _IN_REQUESTS)
    CudaSharedMemoryRegister = _not_served("CudaSharedMemoryRegister", _IN_REQUESTS)
    CudaSharedMemoryUnregister = _not_served("CudaSharedMemoryUnregister", _IN_REQUESTS)
    TraceSetting = _not_served("TraceSetting", _CHOSEN)
    LogSettings = _not_served("LogSettings", _CHOSEN)

    async def _answer(self, request: pb.ModelInferRequest) -> AsyncGenerator[pb.ModelStreamInferResponse, None]:
        """The responses to one request of a stream; an error is one too, and the stream goes on."""
        end = empty_response(_echoed(request.id), _echoed(request.model_name))
        ends_with_empty_response = wants_empty_final_response(request)
        end.parameters[FINAL_RESPONSE].bool_param = True
        reading = self._read(request, may_stream=True)
        del request  # Whatever becomes of it: it would be kept until the client has read what comes before.
        try:
            with self._statistics.one():
                infer_request = await reading
                async with aclosing(self._responses(infer_request)) as responses:
                    async for response in responses:
                        response.parameters[FINAL_RESPONSE].bool_param = False
                        yield pb.ModelStreamInferResponse(infer_response=response)
        except Exception as error:
            yield pb.ModelStreamInferResponse(error_message=as_failure(error).message, infer_response=end)
            return
        if ends_with_empty_response:
            yield pb.ModelStreamInferResponse(infer_response=end)

    async def _responses(self, request: InferRequest) -> AsyncGenerator[pb.ModelInferResponse, None]:
        """One for each time that something came, or one in all."""
        responses = InferResponses(request, self._gate.look_in().model.tokenizer)
        wakeup = Wakeup(self._min_flush_interval_s if request.is_stream else 0.0)
        with self._intake.open(request.generation, wakeup.set) as run:
            while not run.finished:
                await wakeup.wait()
                events = [*run.take()]
                if all(map(is_small, events)):
                    responses.add(events)
                else:
                    await asyncio.to_thread(responses.add, events)
                if request.is_stream and not all(isinstance(event, Started) for event in events):
                    yield responses.response()
        if not request.is_stream:
            yield responses.response()

    async def _read(self, request: pb.ModelInferRequest, may_stream: bool) -> InferRequest:
        read = partial(read_infer_request, may_stream=may_stream)
        return await self._intake.off_loop_if_long(read, request, self._intake.enter().model)

    def _check_model(self, name: str, version: str) -> None:
        """Raises NotFound, and Unavailable before there is a model."""
        model = self._gate.look_in().model
        if name != model.name and name not in model.adapters:
            raise NotFound(f"no model {shown(name)}; this server serves {model.name!r}", reason="MODEL_NOT_FOUND")
        check_version(version)
