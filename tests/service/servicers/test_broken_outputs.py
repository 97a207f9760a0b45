"""What a core sends that makes no sense costs the request it is of, and no other."""

import asyncio

import grpc
import pytest

from core.wire.messages import EngineCoreOutput, FinishReason, PrefillStats
from core.wire.stats import SchedulerStats
from sluicegate.v1 import control_service_pb2
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import FakeCore

A_REQUEST = pb.GenerateRequest(text="hi")
SCORED = pb.GenerateRequest(text="hi", sampling_params={"logprobs": 1})


@pytest.mark.parametrize(
    ("asked", "new_token_ids", "num_nans"),
    [
        (A_REQUEST, [65, -5], 0),
        (A_REQUEST, [65, 257 + 10], 0),
        (A_REQUEST, [2**32], 0),
        (A_REQUEST, [65], 3),
        (SCORED, [65], 0),
    ],
)
async def test_only_that_request_fails(
    inference: InferenceServiceStub,
    core: FakeCore,
    asked: pb.GenerateRequest,
    new_token_ids: list[int],
    num_nans: int,
) -> None:
    """Ids outside the vocabulary, logits that are no numbers, log-probabilities that are missing: an ERROR, aborted."""
    broken = inference.Generate(asked)
    broken_id = (await core.receive_add()).request_id
    neighbour = inference.Generate(A_REQUEST)
    neighbour_id = (await core.receive_add()).request_id
    core.emit(
        EngineCoreOutput(broken_id, new_token_ids, num_nans_in_logits=num_nans),
        EngineCoreOutput(neighbour_id, [65], finish_reason=FinishReason.LENGTH),
    )
    error = await error_of(broken)
    assert (error.code, error.reason) == (grpc.StatusCode.INTERNAL, "ENGINE_ERROR")
    assert (await neighbour).outputs[0].text == "A"
    assert await core.receive_abort() == [broken_id]


async def test_one_of_several_sequences(inference: InferenceServiceStub, core: FakeCore) -> None:
    """It ends as ERROR, and the others as they would have."""
    call = inference.Generate(pb.GenerateRequest(text="hi", sampling_params={"n": 2, "temperature": 1}))
    first, second = [(await core.receive_add()).request_id for _ in range(2)]
    core.emit(
        EngineCoreOutput(first, [65], num_nans_in_logits=1),
        EngineCoreOutput(second, [66], finish_reason=FinishReason.LENGTH),
    )
    outputs = (await call).outputs
    assert [output.finish_reason for output in outputs] == [pb.FINISH_REASON_ERROR, pb.FINISH_REASON_LENGTH]
    assert [output.text for output in outputs] == ["", "B"]


@pytest.mark.parametrize(("sent", "kept"), [(-1, 0), (2**40, 2), (1, 1)])
async def test_cached_tokens_are_of_the_prompt(
    inference: InferenceServiceStub, core: FakeCore, sent: int, kept: int
) -> None:
    """A count that cannot be is taken for the nearest that can."""
    call = inference.Generate(A_REQUEST)
    request_id = (await core.receive_add()).request_id
    prefill = PrefillStats(2, 2, sent)
    core.emit(EngineCoreOutput(request_id, [65], finish_reason=FinishReason.LENGTH, prefill_stats=prefill))
    assert (await call).usage.num_cached_tokens == kept


async def test_statistics_that_make_no_sense(
    control: ControlServiceStub, inference: InferenceServiceStub, core: FakeCore
) -> None:
    """The load is told all the same."""
    call = asyncio.ensure_future(inference.Generate(A_REQUEST))
    request_id = (await core.receive_add()).request_id
    senseless = SchedulerStats(num_running_reqs=-1, num_waiting_reqs=2**60, kv_cache_usage=float("nan"))
    core.emit(EngineCoreOutput(request_id, [65], finish_reason=FinishReason.LENGTH), stats=senseless)
    await call
    load = (await control.GetLoad(control_service_pb2.GetLoadRequest())).load
    assert (load.num_running, load.num_waiting, load.kv_cache_usage) == (0, 2**20, 0)
