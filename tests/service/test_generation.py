"""One request as the core sees it, and its outputs as events."""

from dataclasses import replace

import numpy as np
import pytest

from core.wire.messages import REFUSED, EngineCoreOutput, FinishReason, PrefillStats
from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor
from service.errors import Internal, InvalidRequest
from service.events import Delta, Event, Finished, Started
from service.generation import Generation
from service.generation_request import GenerationRequest, OutputChoices, StopRules
from service.models import ModelFiles
from service.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def byte_tokenizer(byte_model: ModelFiles) -> Tokenizer:
    return Tokenizer.load(byte_model.tokenizer_folder)


def a_request(n: int = 1, output: OutputChoices | None = None, stop: str | None = None) -> GenerationRequest:
    rules = StopRules(strings=(stop,)) if stop else StopRules()
    params = SamplingParams(n=n, seed=5, max_tokens=100, eos_token_id=67)
    return GenerationRequest("r", [1, 2, 3], params, rules, output or OutputChoices(), priority=4, cache_salt="salt")


def kinds(events: list[Event]) -> list[type[Event]]:
    return [type(event) for event in events]


def test_what_the_core_gets(byte_tokenizer: Tokenizer) -> None:
    """Each sequence is one request under an id of its own, with its own seed and all that the request asks for."""
    generation = Generation(a_request(n=2), byte_tokenizer)
    first, second = generation.core_requests()
    assert [first.request_id, second.request_id] == generation.core_ids
    assert first.request_id.removeprefix("0_") == second.request_id.removeprefix("1_")
    assert [request.sampling_params.seed for request in (first, second) if request.sampling_params] == [5, 6]
    assert (first.prompt_token_ids, first.priority, first.cache_salt) == ([1, 2, 3], 4, "salt")
    assert (first.external_req_id, first.client_index) == ("r", 0)


def test_ids_differ_each_time(byte_tokenizer: Tokenizer) -> None:
    """The same request id gives another id in the core each time."""
    names = {Generation(a_request(), byte_tokenizer).core_ids[0] for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("r-") and len(name) == len("r-") + 8 for name in names)


def test_started_once(byte_tokenizer: Tokenizer) -> None:
    """The first output of any sequence brings the one Started, with the prompt only if it was asked for."""
    generation = Generation(a_request(n=2, output=OutputChoices(echo_prompt_token_ids=True)), byte_tokenizer)
    first, second = generation.core_ids
    events = generation.feed(EngineCoreOutput(second, [65], prefill_stats=PrefillStats(3, 1, 2)))
    assert events[0] == Started(3, 2, [1, 2, 3], None)
    assert events[1] == Delta(1, "A", [], None)
    assert kinds(generation.feed(EngineCoreOutput(first, [66], prefill_stats=PrefillStats(3)))) == [Delta]


def test_cached_rows(byte_tokenizer: Tokenizer) -> None:
    """Rows found in the cache count as cached tokens; no more than the prompt has, whatever the core says."""
    for said, told in ((2, 2), (9, 3), (-1, 0)):
        rows = Tensor(np.zeros((3, 4), np.float32))
        generation = Generation(replace(a_request(), prompt_token_ids=[], prompt_embeds=rows), byte_tokenizer)
        output = EngineCoreOutput(generation.core_ids[0], [65], prefill_stats=PrefillStats(3, 1, said))
        assert generation.feed(output)[0] == Started(3, told, [], None)


def test_empty_deltas_are_left_out(byte_tokenizer: Tokenizer) -> None:
    """An output that adds no whole character makes no event, unless token ids were asked for."""
    generation = Generation(a_request(), byte_tokenizer)
    half, rest = "é".encode()
    assert kinds(generation.feed(EngineCoreOutput(generation.core_ids[0], [half]))) == [Started]
    assert generation.feed(EngineCoreOutput(generation.core_ids[0], [rest])) == [Delta(0, "é", [], None)]
    generation = Generation(a_request(output=OutputChoices(token_ids=True)), byte_tokenizer)
    assert generation.feed(EngineCoreOutput(generation.core_ids[0], [half]))[1] == Delta(0, "", [half], None)


def test_finished_when_all_have_ended(byte_tokenizer: Tokenizer) -> None:
    """The generation has ended when its last sequence has; each Finished has its own counts."""
    generation = Generation(a_request(n=2), byte_tokenizer)
    first, second = generation.core_ids
    events = generation.feed(EngineCoreOutput(first, [65, 66], finish_reason=FinishReason.LENGTH))
    assert not generation.finished
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert (finished.index, finished.num_prompt_tokens, finished.finish.num_output_tokens) == (0, 3, 2)
    generation.feed(EngineCoreOutput(second, [65], finish_reason=FinishReason.LENGTH))
    assert generation.finished


def test_stop_string_finishes_before_the_core(byte_tokenizer: Tokenizer) -> None:
    """A stop string ends the sequence although the core goes on."""
    generation = Generation(a_request(stop="!"), byte_tokenizer)
    events = generation.feed(EngineCoreOutput(generation.core_ids[0], [*b"ab!cd"]))
    assert kinds(events) == [Started, Delta, Finished]
    assert events[1] == Delta(0, "ab", [], None)
    assert generation.finished


def failing(core_id: str, cause: str | None = None) -> EngineCoreOutput:
    return EngineCoreOutput(core_id, [], finish_reason=FinishReason.ERROR, stop_reason=cause)


def test_engine_error_is_raised(byte_tokenizer: Tokenizer) -> None:
    """A finish ERROR of the only sequence is an Internal, which keeps the core's words for the log."""
    generation = Generation(a_request(), byte_tokenizer)
    with pytest.raises(Internal, match="the engine failed at request 'r'") as raised:
        generation.feed(failing(generation.core_ids[0], "NaN in the logits"))
    assert raised.value.cause == "NaN in the logits"
    assert "NaN" not in raised.value.message


def test_refusal_is_told(byte_tokenizer: Tokenizer) -> None:
    """What the core refuses is the client's to correct, in the core's words, whichever sequence brings the news."""
    generation = Generation(a_request(n=2), byte_tokenizer)
    with pytest.raises(InvalidRequest, match=r"request: the engine refused it: min_p must be 0, got 1$") as raised:
        generation.feed(failing(generation.core_ids[1], REFUSED + "min_p must be 0, got 1"))
    assert raised.value.reason == "REFUSED_BY_ENGINE"


def test_refusal_of_one_sequence_on_its_way(byte_tokenizer: Tokenizer) -> None:
    """It leaves the others theirs; what leaves all of them no token is the client's to correct."""
    generation = Generation(a_request(n=2), byte_tokenizer)
    first, second = generation.core_ids
    generation.feed(EngineCoreOutput(first, [65]))
    *_, finished = generation.feed(failing(first, REFUSED + "no token is possible"))
    assert isinstance(finished, Finished)
    assert (finished.index, finished.finish.reason) == (0, FinishReason.ERROR)
    generation.feed(EngineCoreOutput(second, [66]))
    with pytest.raises(InvalidRequest, match="no token is possible"):
        generation.feed(failing(second, REFUSED + "no token is possible"))


def test_sequence_that_fails_leaves_the_others(byte_tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture) -> None:
    """Of n sequences one that fails ends as ERROR with what it had, and is logged; the others go on."""
    generation = Generation(a_request(n=2), byte_tokenizer)
    first, second = generation.core_ids
    generation.feed(EngineCoreOutput(second, [65]))
    *events, finished = generation.feed(
        EngineCoreOutput(first, [66], finish_reason=FinishReason.ERROR, stop_reason="NaN in the logits")
    )
    assert events == [Delta(0, "B", [], None)]
    assert isinstance(finished, Finished)
    assert (finished.index, finished.finish.reason, finished.finish.num_output_tokens) == (0, FinishReason.ERROR, 1)
    assert "request r: sequence 0 failed, others go on: NaN in the logits" in caplog.text
    assert kinds(generation.feed(EngineCoreOutput(second, [67], finish_reason=FinishReason.STOP))) == [Finished]
    assert generation.finished


def test_request_fails_when_all_its_sequences_have(byte_tokenizer: Tokenizer) -> None:
    """Not before, and with Internal."""
    generation = Generation(a_request(n=3), byte_tokenizer)
    *earlier, last = generation.core_ids
    for core_id in earlier:
        assert kinds(generation.feed(failing(core_id)))[-1] is Finished
    with pytest.raises(Internal):
        generation.feed(failing(last))


def test_token_outside_the_vocabulary_fails_its_sequence(byte_tokenizer: Tokenizer) -> None:
    """A token id that is none ends its sequence as a failure of the core would."""
    generation = Generation(a_request(n=2), byte_tokenizer)
    first, second = generation.core_ids
    *_, finished = generation.feed(EngineCoreOutput(first, [65, 9999]))
    assert isinstance(finished, Finished)
    assert (finished.index, finished.finish.reason) == (0, FinishReason.ERROR)
    with pytest.raises(Internal) as raised:
        generation.feed(EngineCoreOutput(second, [-1]))
    assert raised.value.cause == "token id -1 is outside the vocabulary of 257"
