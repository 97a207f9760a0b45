"""core.embedding.engine: each text gets its vector, and whoever asks for what it cannot do hears so."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from core.config import SchedulerConfig
from core.embedding.encoder import EncoderInfo
from core.embedding.engine import EmbeddingEngine
from core.request_limits import RequestError
from core.utility_table import UtilityError
from core.wire.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from core.wire.pooling_params import PoolingParams
from core.wire.sampling_params import SamplingParams
from tests.core.builders import make_message

_SIZE = 3


class SumEncoder:
    """A text's vector: how many tokens it has, their sum, 0. ``batches`` are the sizes of its steps."""

    info = EncoderInfo(max_model_len=8, vocab_size=10, size=_SIZE, dtype="float32", is_normalized=True)

    def __init__(self) -> None:
        self.batches: list[int] = []

    def encode(self, prompts: Any) -> NDArray[np.float32]:
        self.batches.append(len(prompts))
        with np.errstate(all="ignore"):
            rows = [[len(prompt), sum(prompt), 0 if sum(prompt) else np.nan] for prompt in prompts]
        return np.array(rows, np.float32)


@pytest.fixture
def encoder() -> SumEncoder:
    return SumEncoder()


@pytest.fixture
def engine(encoder: SumEncoder) -> EmbeddingEngine:
    return EmbeddingEngine(encoder, SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16), max_model_len=8)


def message(request_id: str, token_ids: Any = (1, 2), **params: Any) -> EngineCoreRequest:
    asked = make_message(request_id, token_ids)
    asked.sampling_params, asked.pooling_params = None, PoolingParams(**params)
    return asked


def add(engine: EmbeddingEngine, asked: EngineCoreRequest) -> None:
    engine.add_request(engine.preprocess_add_request(asked))


def step(engine: EmbeddingEngine) -> dict[str, EngineCoreOutput]:
    outputs, _ = engine.step()
    return {output.request_id: output for sent in outputs.values() for output in sent.outputs}


def vector(output: EngineCoreOutput) -> list[float]:
    assert output.pooling_output is not None
    assert output.finish_reason is FinishReason.STOP
    return [round(float(value), 4) for value in output.pooling_output.array]


def test_each_text_has_its_vector(engine: EmbeddingEngine) -> None:
    """Of length 1 unless it is not to be, its first elements if not all are wanted; nothing is left then."""
    add(engine, message("plain", (1, 2)))
    add(engine, message("raw", (4,), use_activation=False))
    add(engine, message("short", (4, 4), dimensions=1))
    outputs = step(engine)
    assert vector(outputs["plain"]) == [round(2 / 13**0.5, 4), round(3 / 13**0.5, 4), 0]
    assert vector(outputs["raw"]) == [1, 4, 0]
    assert vector(outputs["short"]) == [1]
    assert outputs["plain"].prefill_stats is not None
    assert outputs["plain"].prefill_stats.num_prompt_tokens == 2
    assert not engine.has_requests()


def test_a_step_is_bounded(engine: EmbeddingEngine, encoder: SumEncoder) -> None:
    """By texts, and by tokens with their padding; in order; a text that is longer than a step is taken all the same."""
    for number in range(5):
        add(engine, message(f"short{number}"))
    for number in range(3):
        add(engine, message(f"long{number}", [1] * 8))
    while engine.has_requests():
        step(engine)
    assert encoder.batches == [4, 2, 2]


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("sampling_params", make_message("r", (1,), SamplingParams())),
        ("prompt_token_ids", message("r", ())),
        ("prompt_token_ids", message("r", [1] * 9)),
        ("prompt_token_ids", message("r", (10,))),
        ("prompt_token_ids", message("r", (-1,))),
        ("pooling_params.dimensions", message("r", dimensions=0)),
        ("pooling_params.dimensions", message("r", dimensions=_SIZE + 1)),
        ("pooling_params.task", message("r", task="classify")),
        ("pooling_params.step_tag_id", message("r", step_tag_id=1)),
    ],
)
def test_what_cannot_be_is_refused(engine: EmbeddingEngine, field: str, asked: EngineCoreRequest) -> None:
    """By the name of the field, and nothing else notices."""
    add(engine, message("good"))
    with pytest.raises(RequestError) as refusal:
        add(engine, asked)
    assert field in [violation.field for violation in refusal.value.violations]
    assert list(step(engine)) == ["good"]


def test_a_vector_that_is_none_ends_its_own_request(engine: EmbeddingEngine) -> None:
    """NaN is an error and counted, not an answer."""
    add(engine, message("bad", (0,)))
    add(engine, message("good", (1,)))
    outputs = step(engine)
    assert outputs["bad"].finish_reason is FinishReason.ERROR
    assert outputs["bad"].num_nans_in_logits == 1
    assert outputs["good"].finish_reason is FinishReason.STOP


def test_aborts(engine: EmbeddingEngine) -> None:
    """A text that waits is dropped without a word, one in the step too; ids can be used again."""
    add(engine, message("a"))
    with pytest.raises(RequestError):
        add(engine, message("a"))
    engine.abort_requests(["a", "unknown"])
    assert not engine.has_requests()
    add(engine, message("a"))
    add(engine, message("b"))
    (aborted,) = engine.abort_all().values()
    assert aborted.finished_requests == ["a", "b"]
    assert {output.finish_reason for output in aborted.outputs} == {FinishReason.ABORT}


def test_pauses(engine: EmbeddingEngine) -> None:
    """While paused nothing is embedded; "abort" ends what waits."""
    add(engine, message("kept"))
    answer = engine.call_utility("pause_scheduler", ["keep"])
    assert step(engine) == {}
    assert answer.done()
    engine.call_utility("resume_scheduler", [])
    assert list(step(engine)) == ["kept"]
    add(engine, message("ended"))
    answer = engine.call_utility("pause_scheduler", ["abort"])
    assert step(engine)["ended"].finish_reason is FinishReason.ABORT
    step(engine)
    assert answer.done()


def test_utilities(engine: EmbeddingEngine) -> None:
    """It says what it can do, and refuses to sleep."""
    assert engine.call_utility("get_supported_tasks", []) == ["embed"]
    assert engine.call_utility("reset_prefix_cache", []) is True
    with pytest.raises(UtilityError, match="unknown method 'sleep'"):
        engine.call_utility("sleep", [])
