"""Events as messages of sluicegate.v1."""

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from core.wire.messages import FinishReason, LogprobsLists, LogprobsTensors
from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor
from service.events import Delta, Event, Finished, Started
from service.generation_request import GenerationRequest
from service.sequence import SequenceFinish
from service.servicers.responses import ResponseBuilder, off_loop_if_large, to_stream_response
from sluicegate.v1 import inference_service_pb2 as pb

PROMPT_LOGPROBS = LogprobsTensors(
    Tensor(np.array([[7, 8], [9, 9]], "int32")),
    Tensor(np.array([[-0.5, -0.25], [-1.0, -1.0]], "float32")),
    Tensor(np.array([2, 1], "int32")),
)


def finished(reason: FinishReason, token_id: int | None = None, string: str | None = None, index: int = 0) -> Finished:
    return Finished(index, SequenceFinish(reason, token_id, string, 4), 3, 1)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            Started(3, 1, [5, 6, 7], None),
            pb.Started(num_prompt_tokens=3, num_cached_tokens=1, prompt_token_ids=[5, 6, 7]),
        ),
        (Delta(0, "", [0], None), pb.Delta(token_ids=[0])),
        (Delta(2, "é", [], None), pb.Delta(index=2, text="é")),
    ],
)
def test_stream_messages(event: Event, expected: pb.Started | pb.Delta) -> None:
    """Each event is one message that carries the request's id."""
    response = to_stream_response("r", event)
    assert response.request_id == "r"
    assert getattr(response, response.WhichOneof("event")) == expected


@pytest.mark.parametrize(
    ("event", "reason", "stop"),
    [
        (finished(FinishReason.STOP), pb.FINISH_REASON_STOP, None),
        (finished(FinishReason.STOP, token_id=0), pb.FINISH_REASON_STOP, "stop_token_id"),
        (finished(FinishReason.STOP, string="x"), pb.FINISH_REASON_STOP, "stop_string"),
        (finished(FinishReason.LENGTH), pb.FINISH_REASON_LENGTH, None),
        (finished(FinishReason.ABORT), pb.FINISH_REASON_ABORT, None),
        (finished(FinishReason.REPETITION), pb.FINISH_REASON_REPETITION, None),
    ],
)
def test_finish(event: Finished, reason: pb.FinishReason, stop: str | None) -> None:
    """A finish tells the reason, what stopped the sequence if that was asked for, and the usage; unary alike."""
    message = to_stream_response("r", event).finished
    assert (message.finish_reason, message.WhichOneof("stop")) == (reason, stop)
    assert message.usage == pb.Usage(num_prompt_tokens=3, num_cached_tokens=1, num_output_tokens=4)
    builder = ResponseBuilder(GenerationRequest("r", [1], SamplingParams()))
    builder.add(event)
    (output,) = builder.build().outputs
    assert (output.finish_reason, output.WhichOneof("stop")) == (reason, stop)


def scores(num_rows: int) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """Of ``num_rows`` tokens, each beside the 20 best."""
    return np.zeros((num_rows, 21), "int32"), np.zeros((num_rows, 21), "float32"), np.ones(num_rows, "int32")


@pytest.mark.parametrize("num_rows", [0, 97, 98])
async def test_many_logprobs_are_converted_beside_the_event_loop(num_rows: int) -> None:
    """From about 2,000 entries on, of a prompt as well as of a delta that gathered for a slow reader."""
    prompt = LogprobsTensors(*map(Tensor, scores(num_rows)))
    for event in (Started(num_rows + 1, 0, [], prompt), Delta(0, "", [], LogprobsLists(*scores(num_rows)))):
        thread = await off_loop_if_large(lambda _event: threading.current_thread(), event)
        assert (thread is threading.current_thread()) == (num_rows < 98)


def test_prompt_logprobs() -> None:
    """The first prompt token has an empty entry, which keeps the others in step with the prompt."""
    started = to_stream_response("r", Started(3, 0, [], PROMPT_LOGPROBS)).started
    first, second, third = started.prompt_logprobs
    assert first == pb.TokenLogprobs()
    assert (second.token_id, second.logprob, second.rank) == (7, -0.5, 2)
    assert [(top.token_id, top.logprob) for top in second.top] == [(8, -0.25)]
    assert third.token_id == 9


async def test_logprobs_of_the_whole_vocabulary_come_by_token_id() -> None:
    """In one packed field, whatever order the core has them in; of tokens and of the prompt; and they cost little."""
    vocab_size = 49_152
    by_token_id = np.random.default_rng(0).standard_normal(vocab_size).astype("float32")
    order = np.argsort(-by_token_id)
    ids, values = np.array([[7, *order]], "int32"), np.array([[by_token_id[7], *by_token_id[order]]], "float32")
    delta = Delta(0, "", [7], LogprobsLists(ids, values, np.array([3])), scores_all=True)
    prompt = LogprobsTensors(Tensor(ids), Tensor(values), Tensor(np.array([3], "int32")))
    messages = to_stream_response("r", delta).delta.logprobs
    scored = to_stream_response("r", Started(2, 0, [], prompt, scores_all=True)).started.prompt_logprobs
    for one in (messages[0], scored[1]):
        assert (one.token_id, one.logprob, one.rank, len(one.top)) == (7, by_token_id[7], 3, 0)
        np.testing.assert_array_equal(one.all, by_token_id)
        assert len(one.SerializeToString()) < 4 * vocab_size + 32
    assert pb.TokenLogprobs.FromString(messages[0].SerializeToString()) == messages[0]
    assert await off_loop_if_large(lambda _event: threading.current_thread(), delta) is threading.current_thread()


def test_unary_answer() -> None:
    """The sequences of a unary answer are in order, whatever order their events came in; usage is the sum."""
    builder = ResponseBuilder(GenerationRequest("r", [1], SamplingParams(n=2)))
    for event in (Started(3, 1, [1], PROMPT_LOGPROBS), Delta(1, "x", [5], None), Delta(0, "a", [6], None)):
        builder.add(event)
    builder.add(Delta(1, "y", [7], None))
    builder.add(finished(FinishReason.LENGTH, index=1))
    builder.add(finished(FinishReason.STOP, index=0))
    response = builder.build()
    assert [(output.index, output.text, list(output.token_ids)) for output in response.outputs] == [
        (0, "a", [6]),
        (1, "xy", [5, 7]),
    ]
    assert response.usage == pb.Usage(num_prompt_tokens=3, num_cached_tokens=1, num_output_tokens=8)
    assert (list(response.prompt_token_ids), len(response.prompt_logprobs)) == ([1], 3)
