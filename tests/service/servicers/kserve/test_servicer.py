"""The Open Inference Protocol over a real channel, before a scripted core."""

import asyncio
import json
import random
from collections.abc import AsyncIterator

import grpc
import numpy as np
import pytest
from google.protobuf.message import Message

from core.wire.messages import EngineCoreOutput, FinishReason, LogprobsLists
from service.server import GatewayServer
from service.servicers.kserve.tensor_specs import INPUTS, OUTPUTS
from sluicegate.third_party.inference import grpc_service_pb2 as pb
from sluicegate.third_party.inference.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from sluicegate.third_party.inference.model_config_pb2 import TYPE_BOOL, TYPE_STRING
from sluicegate.v1 import inference_service_pb2 as own
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import FakeCore
from tests.service.servicers.calls import until_idle
from tests.service.servicers.kserve.requests import infer_request, tensors_of
from tests.service.servicers.test_cancellation import live_until_last

ALL_RETURNED = {
    "return_finish_reason": True,
    "return_cumulative_logprob": True,
    "return_logprobs": True,
    "return_num_input_tokens": True,
    "return_num_output_tokens": True,
}


class Stream:
    """One ModelStreamInfer call."""

    def __init__(self, kserve: GRPCInferenceServiceStub) -> None:
        self.call = kserve.ModelStreamInfer(timeout=60)

    async def send(self, *requests: pb.ModelInferRequest) -> None:
        for request in requests:
            await self.call.write(request)

    async def read(self) -> pb.ModelStreamInferResponse:
        response = await self.call.read()
        assert isinstance(response, pb.ModelStreamInferResponse), response
        return response

    async def read_tensors(self) -> tuple[str, dict[str, list[object]]]:
        """The id and the outputs of the next response, which is no error."""
        response = await self.read()
        assert response.error_message == ""
        assert response.infer_response.model_name == "bytes"
        assert not response.infer_response.parameters["triton_final_response"].bool_param
        return response.infer_response.id, tensors_of(response.infer_response)

    async def end(self) -> None:
        """No more requests; and no more responses either."""
        await self.call.done_writing()
        assert await self.call.read() is grpc.aio.EOF
        assert await self.call.code() is grpc.StatusCode.OK


@pytest.fixture
async def stream(kserve: GRPCInferenceServiceStub) -> AsyncIterator[Stream]:
    opened = Stream(kserve)
    yield opened
    opened.call.cancel()


class TestModelInfer:
    """One response with everything."""

    async def test_text(self, kserve: GRPCInferenceServiceStub, core: FakeCore) -> None:
        """It begins with the prompt unless told otherwise, whatever tokens it comes in."""
        for excludes, expected in ((None, "hiABC"), (False, "hiABC"), (True, "ABC")):
            flags = {} if excludes is None else {"exclude_input_in_output": excludes}
            call = asyncio.ensure_future(kserve.ModelInfer(infer_request(**flags)))
            request = await core.receive_add()
            core.emit_token(request.request_id, 65)
            core.emit(EngineCoreOutput(request.request_id, [66, 67], finish_reason=FinishReason.LENGTH))
            response = await call
            assert (response.id, response.model_name, response.model_version) == ("r1", "bytes", "1")
            assert tensors_of(response) == {"text_output": [expected]}

    async def test_everything_that_can_be_returned(self, kserve: GRPCInferenceServiceStub, core: FakeCore) -> None:
        """Of each sequence: why it ended, how likely it was, and how many tokens it has."""
        sampling = {"n": 2, "logprobs": 1}
        call = asyncio.ensure_future(kserve.ModelInfer(infer_request(sampling=sampling, **ALL_RETURNED)))
        first, second = [(await core.receive_add()).request_id for _ in range(2)]
        core.emit(EngineCoreOutput(first, [65, 66], scored([[65, 97], [66, 65]], [[-0.5, -1], [-2, -0.25]], [1, 5])))
        core.emit(
            EngineCoreOutput(first, [67], scored([[67, 67]], [[-0.25, -0.25]], [1]), finish_reason=FinishReason.STOP),
            EngineCoreOutput(second, [97], scored([[97, 65]], [[-1, -0.5]], [2]), finish_reason=FinishReason.LENGTH),
        )
        tensors = tensors_of(await call)
        logprobs = [json.loads(str(text)) for text in tensors.pop("logprobs")]
        assert tensors == {
            "text_output": ["hiAB", "hia"],
            "finish_reason": ["stop", "length"],
            "cumulative_logprob": [-2.75, -1.0],
            "num_input_tokens": [2],
            "num_output_tokens": [3, 1],
        }
        assert logprobs[0][1] == {
            "66": {"logprob": -2.0, "rank": 5, "decoded_token": "B"},
            "65": {"logprob": -0.25, "rank": 1, "decoded_token": "A"},
        }
        assert [len(of_sequence) for of_sequence in logprobs] == [3, 1]

    async def test_likelihoods_without_logprobs(self, kserve: GRPCInferenceServiceStub, core: FakeCore) -> None:
        """The sum is there all the same; there are no log-probabilities of tokens."""
        flags = {"return_cumulative_logprob": True, "return_logprobs": True}
        call = asyncio.ensure_future(kserve.ModelInfer(infer_request(**flags)))
        request = await core.receive_add()
        assert request.sampling_params is not None
        assert request.sampling_params.logprobs == 0
        logprobs = scored([[65]], [[-0.5]], [1])
        core.emit(EngineCoreOutput(request.request_id, [65], logprobs, finish_reason=FinishReason.LENGTH))
        tensors = tensors_of(await call)
        assert (tensors["cumulative_logprob"], tensors["logprobs"]) == ([-0.5], ["null"])

    async def test_outputs_that_are_named(self, kserve: GRPCInferenceServiceStub, core: FakeCore) -> None:
        """Of those that the flags ask for, only they come."""
        outputs = "finish_reason", "logprobs"
        request = infer_request(outputs=outputs, return_finish_reason=True, return_num_output_tokens=True)
        call = asyncio.ensure_future(kserve.ModelInfer(request))
        core.emit_token((await core.receive_add()).request_id, 65, FinishReason.STOP)
        assert tensors_of(await call) == {"finish_reason": ["stop"]}

    async def test_sampling_parameters(self, kserve: GRPCInferenceServiceStub, core: FakeCore) -> None:
        """From the tensor, or without it from the parameters of the request, which may write lists as JSON."""
        given = {"max_tokens": "7", "temperature": "0", "stop_token_ids": "[65, 66]"}
        requests = infer_request(sampling=given), infer_request(parameters=given | {"triton_x": 1, "priority": 5})
        for request in requests:
            call = asyncio.ensure_future(kserve.ModelInfer(request))
            added = await core.receive_add()
            assert added.sampling_params is not None
            assert (added.sampling_params.max_tokens, added.sampling_params.temperature) == (7, 0.0)
            assert {65, 66} <= {*(added.sampling_params.stop_token_ids or ())}
            assert added.external_req_id is not None
            assert added.external_req_id.startswith("r1-")
            core.emit_token(added.request_id, 65, FinishReason.STOP)
            await call

    async def test_ids_need_not_be_unique(self, kserve: GRPCInferenceServiceStub, core: FakeCore) -> None:
        """Nor given: they are echoed, and that is all."""
        for request_id in ("same", "", "š\n"):
            calls = [asyncio.ensure_future(kserve.ModelInfer(infer_request(request_id=request_id))) for _ in range(2)]
            for _ in calls:
                core.emit_token((await core.receive_add()).request_id, 65, FinishReason.LENGTH)
            assert [(await call).id for call in calls] == [request_id] * 2

    @pytest.mark.parametrize(
        ("request_", "field", "text"),
        [
            (infer_request(None), "text_input", "is required"),
            (infer_request(""), "text_input", "must not be empty"),
            (infer_request("x" * 2000), "text_input", "must have less than max_model_len (1024)"),
            (infer_request(b"\xff"), "text_input", "must be UTF-8"),
            (infer_request(stream=True), "stream", "must be false, got true"),
            (infer_request(request_id="x" * 300), "id", "must have at most 200 bytes, got 300"),
            (infer_request(sampling="[1]"), "sampling_parameters", "must be a JSON object, got '[1]'"),
            (infer_request(sampling="{"), "sampling_parameters", "must be JSON (Expecting property name"),
            (infer_request(sampling="[" * 100_000), "sampling_parameters", "must be JSON"),
            (infer_request(sampling={"top_p": "3"}), "sampling_parameters.top_p", "must be in (0, 1], got 3"),
            (infer_request(parameters={"top_p": 3.0}), "parameters.top_p", "must be in (0, 1], got 3"),
            (infer_request(sampling={"n": 100_000}), "sampling_parameters.n", "got 100000"),
            (infer_request(sampling={"stop": [""]}), "sampling_parameters.stop", "must not hold an empty string"),
            (
                infer_request(sampling={"guided_decoding": {"json": "nonsense"}}),
                "sampling_parameters.structured_outputs",
                "must be a JSON object, got 'nonsense'",
            ),
            (infer_request(outputs=("song",)), "outputs", "no tensor 'song' is known; there are text_output,"),
        ],
    )
    async def test_bad_requests(
        self, kserve: GRPCInferenceServiceStub, request_: pb.ModelInferRequest, field: str, text: str
    ) -> None:
        """INVALID_ARGUMENT, with the tensor or parameter, what it should be and what it is."""
        error = await error_of(kserve.ModelInfer(request_))
        assert error.code is grpc.StatusCode.INVALID_ARGUMENT
        assert error.fields == [field]
        assert text in error.message

    async def test_all_that_is_wrong_is_named(self, kserve: GRPCInferenceServiceStub) -> None:
        request = infer_request(b"\xff", sampling={"top_p": 3, "n": "x", "song": 1}, stream=True)
        error = await error_of(kserve.ModelInfer(request))
        assert sorted(error.fields) == [
            "sampling_parameters",
            "sampling_parameters.n",
            "sampling_parameters.top_p",
            "stream",
            "text_input",
        ]

    async def test_models(self, kserve: GRPCInferenceServiceStub) -> None:
        """Another model and another version are not found."""
        for request in (infer_request(model_name="other"), infer_request()):
            request.model_version = "" if request.model_name == "other" else "2"
            error = await error_of(kserve.ModelInfer(request))
            assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")

    async def test_cancelled(self, kserve: GRPCInferenceServiceStub, core: FakeCore, gateway: GatewayServer) -> None:
        """The core is told."""
        call = kserve.ModelInfer(infer_request())
        request = await core.receive_add()
        call.cancel()
        assert await core.receive_abort() == [request.request_id]
        await until_idle(gateway)


class TestModelStreamInfer:
    """Many requests on one stream."""

    async def test_deltas(self, stream: Stream, core: FakeCore) -> None:
        """A response for whatever has come, with what is new in it; the prompt is not repeated."""
        await stream.send(infer_request(stream=True, return_finish_reason=True, return_num_output_tokens=True))
        request_id = (await core.receive_add()).request_id
        core.emit_token(request_id, 65)
        expected = {"text_output": ["A"], "finish_reason": ["None"], "num_output_tokens": [1]}
        assert await stream.read_tensors() == ("r1", expected)
        core.emit(EngineCoreOutput(request_id, [66, 67], finish_reason=FinishReason.LENGTH))
        expected = {"text_output": ["BC"], "finish_reason": ["length"], "num_output_tokens": [2]}
        assert await stream.read_tensors() == ("r1", expected)
        await stream.end()

    async def test_sequences(self, stream: Stream, core: FakeCore) -> None:
        """Each response has an element for each of them, empty for those that have nothing new."""
        await stream.send(infer_request(sampling={"n": 2}, stream=True, return_finish_reason=True))
        first, second = [(await core.receive_add()).request_id for _ in range(2)]
        core.emit_token(second, 66, FinishReason.LENGTH)
        assert (await stream.read_tensors())[1] == {"text_output": ["", "B"], "finish_reason": ["None", "length"]}
        core.emit_token(first, 65, FinishReason.LENGTH)
        assert (await stream.read_tensors())[1] == {"text_output": ["A", ""], "finish_reason": ["length", "length"]}
        await stream.end()

    async def test_without_stream_there_is_one_response(self, stream: Stream, core: FakeCore) -> None:
        """As of ModelInfer, the prompt first."""
        await stream.send(infer_request())
        request_id = (await core.receive_add()).request_id
        core.emit_token(request_id, 65)
        core.emit_token(request_id, 66, FinishReason.LENGTH)
        assert await stream.read_tensors() == ("r1", {"text_output": ["hiAB"]})
        await stream.end()

    async def test_requests_share_the_stream(self, stream: Stream, core: FakeCore) -> None:
        """Their responses come as they are made, each under its id."""
        names = ["a", "b", "c"]
        await stream.send(*(infer_request(request_id=name, stream=True) for name in names))
        ids = {}
        for _ in names:
            request = await core.receive_add()
            assert request.external_req_id is not None
            ids[request.external_req_id[0]] = request.request_id
        for name, token_id in (("c", 65), ("a", 66), ("c", 67), ("b", 68)):
            core.emit_token(ids[name], token_id)
            assert await stream.read_tensors() == (name, {"text_output": [chr(token_id)]})
        for name in names:
            core.emit_token(ids[name], 90, FinishReason.LENGTH)
        assert sorted([(await stream.read_tensors())[0] for _ in names]) == names
        await stream.end()

    async def test_the_end_of_a_request(self, stream: Stream, core: FakeCore) -> None:
        """Who asks for it gets a last response without outputs, which says that it is the last."""
        parameters = {"triton_enable_empty_final_response": True, "max_tokens": 1}
        await stream.send(infer_request(parameters=parameters, stream=True))
        core.emit_token((await core.receive_add()).request_id, 65, FinishReason.LENGTH)
        await stream.read_tensors()
        last = (await stream.read()).infer_response
        assert (last.id, last.parameters["triton_final_response"].bool_param, len(last.outputs)) == ("r1", True, 0)
        await stream.end()

    async def test_an_error_is_that_of_its_request(self, stream: Stream, core: FakeCore) -> None:
        """It comes with the id, and the stream goes on."""
        bad = infer_request(request_id="bad", sampling={"top_p": 3}, stream=True)
        await stream.send(infer_request(request_id="good", stream=True), bad)
        request_id = (await core.receive_add()).request_id
        response = await stream.read()
        assert response.error_message == "sampling_parameters.top_p: must be in (0, 1], got 3.0"
        assert response.infer_response.id == "bad"
        assert response.infer_response.parameters["triton_final_response"].bool_param
        core.emit_token(request_id, 65, FinishReason.LENGTH)
        assert (await stream.read_tensors())[0] == "good"
        await stream.end()

    async def test_long_names_are_not_echoed(self, stream: Stream) -> None:
        """An error that waits to be read is small, whatever the request was."""
        await stream.send(infer_request(request_id="x" * 100_000, model_name="y" * 100_000))
        response = await stream.read()
        assert "no model 'yyyy" in response.error_message
        assert response.ByteSize() < 1000
        await stream.end()

    async def test_streams_do_not_repeat_the_prompt(self, stream: Stream) -> None:
        """As the backend has it, asking for that is an error."""
        await stream.send(infer_request(stream=True, exclude_input_in_output=False))
        assert (await stream.read()).error_message == "exclude_input_in_output: must be true in a stream, got false"
        await stream.end()

    async def test_what_the_core_fails_at(self, stream: Stream, core: FakeCore, gateway: GatewayServer) -> None:
        """INTERNAL is told by its message; the loss of the core, too. What runs beside goes on."""
        await stream.send(infer_request(request_id="a", stream=True), infer_request(request_id="b", stream=True))
        ids = [(await core.receive_add()).request_id for _ in range(2)]
        core.emit(EngineCoreOutput(ids[0], [], finish_reason=FinishReason.ERROR))
        response = await stream.read()
        assert "the engine failed at request" in response.error_message
        assert response.infer_response.id == "a"
        core.close()
        response = await stream.read()
        assert "the engine core is gone" in response.error_message
        assert response.infer_response.id == "b"
        await stream.end()
        await until_idle(gateway)

    async def test_cancelled(self, stream: Stream, core: FakeCore, gateway: GatewayServer) -> None:
        """All its requests are aborted in the core, those that wait for nothing and those that wait to be written."""
        await stream.send(*(infer_request(request_id=str(number), stream=True) for number in range(8)))
        ids = [(await core.receive_add()).request_id for _ in range(8)]
        for request_id in ids[:4]:
            core.emit_token(request_id, 65)
        await stream.read()
        stream.call.cancel()
        aborted: list[str] = []
        while len(aborted) < len(ids):
            aborted += await core.receive_abort()
        assert sorted(aborted) == sorted(ids)
        await until_idle(gateway)

    async def test_a_message_that_is_none(self, gateway: GatewayServer) -> None:
        """Ends the stream as INVALID_ARGUMENT."""
        async with grpc.aio.insecure_channel(gateway.grpc_addresses[0]) as channel:
            method = "/inference.GRPCInferenceService/ModelStreamInfer"
            call = channel.stream_stream(method)(iter([b"\xff\xff"]))
            error = await error_of(call.read())
        assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "UNDECODABLE_REQUEST")


class TestAbout:
    """What clients ask before they send anything."""

    async def test_health(self, kserve: GRPCInferenceServiceStub) -> None:
        """The server lives and is ready, and so is its model, in its version; no other is."""
        assert (await kserve.ServerLive(pb.ServerLiveRequest())).live
        assert (await kserve.ServerReady(pb.ServerReadyRequest())).ready
        for name, version, ready in (
            ("bytes", "", True),
            ("bytes", "1", True),
            ("bytes", "2", False),
            ("x", "", False),
        ):
            answer = await kserve.ModelReady(pb.ModelReadyRequest(name=name, version=version))
            assert answer.ready == ready

    async def test_metadata(self, kserve: GRPCInferenceServiceStub) -> None:
        """Names, and the tensors with their types and shapes."""
        assert (await kserve.ServerMetadata(pb.ServerMetadataRequest())).name == "sluicegate"
        metadata = await kserve.ModelMetadata(pb.ModelMetadataRequest(name="bytes"))
        assert (metadata.name, [*metadata.versions]) == ("bytes", ["1"])
        assert [tensor.name for tensor in metadata.inputs] == [spec.name for spec in INPUTS]
        assert [(tensor.name, tensor.datatype, [*tensor.shape]) for tensor in metadata.outputs] == [
            (spec.name, spec.datatype, [spec.size]) for spec in OUTPUTS
        ]

    async def test_config(self, kserve: GRPCInferenceServiceStub) -> None:
        """One request has many responses."""
        config = (await kserve.ModelConfig(pb.ModelConfigRequest(name="bytes"))).config
        assert config.model_transaction_policy.decoupled
        assert config.max_batch_size == 0
        assert [(each.name, each.data_type, each.optional) for each in config.input[:2]] == [
            ("text_input", TYPE_STRING, False),
            ("stream", TYPE_BOOL, True),
        ]

    async def test_repository_and_statistics(self, kserve: GRPCInferenceServiceStub, core: FakeCore) -> None:
        """The models that are there, and how many requests there were, by how they ended."""
        index = await kserve.RepositoryIndex(pb.RepositoryIndexRequest())
        assert [(model.name, model.version, model.state) for model in index.models] == [("bytes", "1", "READY")]
        call = asyncio.ensure_future(kserve.ModelInfer(infer_request()))
        core.emit_token((await core.receive_add()).request_id, 65, FinishReason.LENGTH)
        await call
        await error_of(kserve.ModelInfer(infer_request("")))
        (statistics,) = (await kserve.ModelStatistics(pb.ModelStatisticsRequest())).model_stats
        assert (statistics.name, statistics.inference_count) == ("bytes", 1)
        assert (statistics.inference_stats.success.count, statistics.inference_stats.fail.count) == (1, 1)
        assert statistics.inference_stats.success.ns > 0

    @pytest.mark.parametrize("method", ["ModelMetadata", "ModelConfig", "ModelStatistics"])
    async def test_unknown_models(self, kserve: GRPCInferenceServiceStub, method: str) -> None:
        """They are not found."""
        request: Message = getattr(pb, f"{method}Request")(name="other")
        assert (await error_of(getattr(kserve, method)(request))).code is grpc.StatusCode.NOT_FOUND

    @pytest.mark.parametrize(
        "method",
        [
            "RepositoryModelLoad",
            "RepositoryModelUnload",
            "SystemSharedMemoryStatus",
            "SystemSharedMemoryRegister",
            "SystemSharedMemoryUnregister",
            "CudaSharedMemoryStatus",
            "CudaSharedMemoryRegister",
            "CudaSharedMemoryUnregister",
            "TraceSetting",
            "LogSettings",
        ],
    )
    async def test_not_served(self, kserve: GRPCInferenceServiceStub, method: str) -> None:
        """UNIMPLEMENTED, with the name and the reason."""
        error = await error_of(getattr(kserve, method)(getattr(pb, f"{method}Request")()))
        assert error.code is grpc.StatusCode.UNIMPLEMENTED
        assert error.message.startswith(f"{method} is not served: ")


def scored(token_ids: list[list[int]], logprobs: list[list[float]], ranks: list[int]) -> LogprobsLists:
    return LogprobsLists(np.array(token_ids), np.array(logprobs, np.float32), np.array(ranks))


async def test_random_cancellations_leave_nothing(
    kserve: GRPCInferenceServiceStub, inference: InferenceServiceStub, core: FakeCore, gateway: GatewayServer
) -> None:
    """Streams with several requests, given up at random moments: each is aborted in the core, the tables are empty."""
    rng = random.Random(1)
    live: set[str] = set()

    async def give_up() -> None:
        stream = Stream(kserve)
        for number in range(rng.randrange(1, 5)):
            await stream.send(infer_request(request_id=str(number), stream=rng.random() < 0.8))
        for _ in range(rng.randrange(400)):
            await asyncio.sleep(0)
        stream.call.cancel()

    serving = asyncio.ensure_future(live_until_last(core, live))
    await asyncio.gather(*(give_up() for _ in range(50)))
    await until_idle(gateway)
    last = inference.Generate(own.GenerateRequest(request_id="last", text="hi"))
    await serving
    last.cancel()
    assert live == set()
