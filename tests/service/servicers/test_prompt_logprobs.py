"""The log-probabilities of a prompt, from the core's output to the client."""

import numpy as np

from core.wire.messages import EngineCoreOutput, FinishReason, LogprobsTensors
from core.wire.tensor import Tensor
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.fake_core import FakeCore


async def test_prompt_logprobs(inference: InferenceServiceStub, core: FakeCore) -> None:
    """Streamed and at once: an empty entry for the first token of the prompt, then one for each."""
    asked = pb.GenerateRequest(token_ids=pb.TokenIds(ids=[5, 66, 67]), sampling_params={"prompt_logprobs": 1, "n": 2})
    rows = Tensor(np.array([[66, 7], [67, 67]], "<i4")), Tensor(np.array([[-1.5, -0.5], [-0.25, -0.25]], "<f4"))
    scores = LogprobsTensors(*rows, Tensor(np.array([2, 1], "<i4")))
    stream, unary = inference.GenerateStream(asked), inference.Generate(asked)
    for _ in range(4):
        request = await core.receive_add()
        assert request.sampling_params.prompt_logprobs == 1
        assert request.sampling_params.skip_reading_prefix_cache
        core.emit(
            EngineCoreOutput(
                request.request_id, [65], new_prompt_logprobs_tensors=scores, finish_reason=FinishReason.LENGTH
            )
        )
    (started,) = [event.started async for event in stream if event.HasField("started")]
    for first, second, third in (started.prompt_logprobs, (await unary).prompt_logprobs):
        assert first == pb.TokenLogprobs()
        assert (second.token_id, second.logprob, second.rank) == (66, -1.5, 2)
        assert (third.token_id, third.rank, third.top[0].token_id) == (67, 1, 67)
