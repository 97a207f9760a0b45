"""service.sequence: text, tokens and end of one sequence, whatever the core puts into one output."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.wire.messages import EngineCoreOutput, FinishReason, LogprobsLists
from core.wire.sampling_params import SamplingParams
from service.generation_request import GenerationRequest, OutputChoices, StopRules
from service.sequence import Sequence, SequenceDelta, SequenceFinish
from service.text.token_bytes import UnknownTokenError
from service.text.tokenizer import Tokenizer

_EOS = 2


def _request(
    min_tokens: int = 0, output: OutputChoices | None = None, prompt: tuple[int, ...] = (504,), **stop: Any
) -> GenerationRequest:
    params = SamplingParams(min_tokens=min_tokens, eos_token_id=_EOS)
    return GenerationRequest("r", [*prompt], params, StopRules(**stop), output or OutputChoices())


def _output(
    token_ids: list[int], reason: FinishReason | None = None, stop_reason: int | None = None
) -> EngineCoreOutput:
    return EngineCoreOutput("r", token_ids, finish_reason=reason, stop_reason=stop_reason)


def _run(
    tokenizer: Tokenizer,
    request: GenerationRequest,
    token_ids: list[int],
    last: FinishReason = FinishReason.LENGTH,
    sizes: list[int] | None = None,
) -> tuple[str, list[int], SequenceFinish]:
    """Feed ``token_ids`` in outputs of the given sizes (then of one each): the text, the tokens and the end."""
    sequence, text, kept = Sequence(0, request, tokenizer), "", []
    remaining, sizes = [*token_ids], [*(sizes or [])]
    while True:
        size = sizes.pop(0) if sizes else 1
        head, remaining = remaining[:size], remaining[size:]
        delta = sequence.feed(_output(head, None if remaining else last))
        text += delta.text
        kept += delta.token_ids
        if delta.finish is not None:
            return text, kept, delta.finish


def test_deltas_joined_are_the_decoded_tokens(tokenizer: Tokenizer) -> None:
    """Without stop rules: every token, and the text of all of them."""
    token_ids = tokenizer.encode("Hello 🎉, 今日は")
    expected = SequenceFinish(FinishReason.LENGTH, None, None, len(token_ids))
    assert _run(tokenizer, _request(), token_ids) == ("Hello 🎉, 今日は", token_ids, expected)


@given(
    st.lists(st.integers(0, 49_151), min_size=1, max_size=30),
    st.lists(st.integers(1, 6), max_size=10),
    st.lists(st.text("aeiou tn", min_size=1, max_size=3), max_size=3),
    st.integers(0, 10),
    st.booleans(),
)
def test_result_does_not_depend_on_how_many_tokens_come_at_once(
    tokenizer: Tokenizer, token_ids: list[int], sizes: list[int], stops: list[str], min_tokens: int, include: bool
) -> None:
    """Text, tokens and end are those of one token per output, with stop strings and min_tokens too."""
    request = _request(min_tokens, strings=tuple(stops), include_in_output=include)
    assert _run(tokenizer, request, token_ids, sizes=sizes) == _run(tokenizer, request, token_ids)
    assert _run(tokenizer, request, token_ids, sizes=[len(token_ids)]) == _run(tokenizer, request, token_ids)


@given(
    st.lists(st.lists(st.integers(0, 49_151), min_size=1, max_size=6), min_size=1, max_size=10),
    st.lists(st.text("aeiou tn", min_size=1, max_size=3), max_size=3),
    st.integers(0, 10),
    st.booleans(),
)
def test_what_passes_through_is_what_feeding_gives(
    tokenizer: Tokenizer, outputs: list[list[int]], stops: list[str], min_tokens: int, include: bool
) -> None:
    """Output by output, where it passes at all: the same text; and the same end."""
    request = _request(min_tokens, strings=tuple(stops), include_in_output=include)
    passing, feeding = Sequence(0, request, tokenizer), Sequence(0, request, tokenizer)
    for token_ids in outputs:
        expected = feeding.feed(_output(token_ids))
        text = passing.pass_through(token_ids)
        assert (passing.feed(_output(token_ids)).text if text is None else text) == expected.text
        if expected.finish is not None:
            return
    assert passing.feed(_output([504], FinishReason.LENGTH)) == feeding.feed(_output([504], FinishReason.LENGTH))


def test_stop_string_cuts_text_and_tokens(tokenizer: Tokenizer) -> None:
    """Text ends before it; tokens and count end with the token that completed it; what follows is dropped."""
    token_ids = tokenizer.encode("alpha beta gamma delta epsilon")
    text, kept, finish = _run(tokenizer, _request(strings=("beta gamma",)), token_ids, sizes=[len(token_ids)])
    assert text == "alpha "
    assert tokenizer.decode(kept) == "alpha beta gamma"
    assert finish == SequenceFinish(FinishReason.STOP, None, "beta gamma", len(kept))


def test_included_stop_string_stays(tokenizer: Tokenizer) -> None:
    """With include_in_output the text ends with it, even inside a token."""
    token_ids = tokenizer.encode("alpha beta gamma delta")
    text, _, finish = _run(tokenizer, _request(strings=("bet",), include_in_output=True), token_ids)
    assert text == "alpha bet"
    assert finish.stop_string == "bet"


def test_near_miss_is_delivered_at_the_end(tokenizer: Tokenizer) -> None:
    """What could have become a stop string comes with the last delta."""
    token_ids = tokenizer.encode("alpha beta")
    text, _, finish = _run(tokenizer, _request(strings=("beta gamma",)), token_ids)
    assert text == "alpha beta"
    assert finish == SequenceFinish(FinishReason.LENGTH, None, None, len(token_ids))


@pytest.mark.parametrize("min_tokens", [0, 1, 2, 3])
def test_stop_string_counts_only_after_min_tokens(tokenizer: Tokenizer, min_tokens: int) -> None:
    """One that is complete within the first min_tokens tokens is text; the next one ends the sequence."""
    stop = tokenizer.encode(" stop")
    assert len(stop) == 1
    text, kept, finish = _run(tokenizer, _request(min_tokens, strings=(" stop",)), stop * 5)
    assert text == " stop" * min_tokens
    assert kept == stop * (min_tokens + 1)
    assert finish.num_output_tokens == min_tokens + 1


def test_end_of_sequence_token_is_counted_and_not_shown(tokenizer: Tokenizer) -> None:
    """Not even when special tokens are: it ended the text, it is no part of it."""
    request = _request(output=OutputChoices(skip_special_tokens=False))
    text, kept, finish = _run(tokenizer, request, [19556, _EOS], FinishReason.STOP)
    assert (text, kept) == ("Hello", [19556, _EOS])
    assert finish == SequenceFinish(FinishReason.STOP, None, None, 2)


def test_stop_token_is_shown_if_it_is_to_be_included(tokenizer: Tokenizer) -> None:
    """include_in_output is about stop tokens as well."""
    request = _request(token_ids=frozenset({19556}), include_in_output=True)
    assert _run(tokenizer, request, [504, 19556], FinishReason.STOP)[0] == "TheHello"
    request = _request(token_ids=frozenset({19556}))
    assert _run(tokenizer, request, [504, 19556], FinishReason.STOP)[0] == "The"


def test_a_form_without_an_end_is_shown_to_its_last_token(tokenizer: Tokenizer) -> None:
    """With ignore_eos the core stops at no token, but when nothing can follow."""
    request = GenerationRequest("r", [504], SamplingParams(ignore_eos=True), StopRules(), OutputChoices())
    text, kept, finish = _run(tokenizer, request, [504, 19556], FinishReason.STOP)
    assert (text, kept) == ("TheHello", [504, 19556])
    assert finish == SequenceFinish(FinishReason.STOP, None, None, 2)


def test_only_a_token_the_client_named_is_reported(tokenizer: Tokenizer) -> None:
    """The core gets the model's further end-of-sequence tokens as stop tokens; the client is told of its own alone."""
    for asked, reported in ((frozenset({7}), 7), (frozenset({8}), None)):
        delta = Sequence(0, _request(token_ids=asked), tokenizer).feed(_output([7], FinishReason.STOP, 7))
        assert delta.finish == SequenceFinish(FinishReason.STOP, reported, None, 1)


def test_repetition_names_no_stop(tokenizer: Tokenizer) -> None:
    """The core's word for it is not a stop string."""
    output = EngineCoreOutput("r", [7], finish_reason=FinishReason.REPETITION, stop_reason="repetition_detected")
    delta = Sequence(0, _request(), tokenizer).feed(output)
    assert delta.finish == SequenceFinish(FinishReason.REPETITION, None, None, 1)


def test_abort_without_tokens_flushes_what_was_held_back(tokenizer: Tokenizer) -> None:
    """What was generated is kept: a possible stop string, and half a character as U+FFFD."""
    sequence = Sequence(0, _request(strings=("Hello world",)), tokenizer)
    half, *_ = tokenizer.encode("🎉")
    assert sequence.feed(_output([19556])) == SequenceDelta("", [19556], None, None)
    delta = sequence.feed(_output([], FinishReason.ABORT))
    assert delta == SequenceDelta("Hello", [], None, SequenceFinish(FinishReason.ABORT, None, None, 1))
    assert _run(tokenizer, _request(), [19556, half], FinishReason.ABORT)[0] == "Hello\ufffd"


def test_text_that_was_not_asked_for_still_stops(tokenizer: Tokenizer) -> None:
    """text=false: no text, and stop strings all the same."""
    token_ids = tokenizer.encode("alpha beta gamma")
    request = _request(output=OutputChoices(text=False), strings=("beta",))
    text, kept, finish = _run(tokenizer, request, token_ids)
    assert text == ""
    assert tokenizer.decode(kept) == "alpha beta"
    assert finish.stop_string == "beta"


def test_logprobs_are_cut_with_the_tokens(tokenizer: Tokenizer) -> None:
    """One row per token that is delivered."""
    token_ids = tokenizer.encode("alpha beta gamma")
    n = len(token_ids)
    rows = LogprobsLists(
        np.arange(2 * n, dtype=np.int32).reshape(n, 2), np.zeros((n, 2), np.float32), np.arange(n, dtype=np.int64)
    )
    output = EngineCoreOutput("r", token_ids, new_logprobs=rows)
    whole = Sequence(0, _request(), tokenizer).feed(output)
    assert whole.logprobs is rows
    cut = Sequence(0, _request(strings=("beta",)), tokenizer).feed(output)
    assert cut.logprobs is not None
    assert 0 < len(cut.token_ids) < n
    assert cut.logprobs.ranks.tolist() == [*range(len(cut.token_ids))]
    assert cut.logprobs.token_ids.shape == cut.logprobs.logprobs.shape == (len(cut.token_ids), 2)


@pytest.mark.parametrize("token_id", [-5, 49_162, 2**32])
@pytest.mark.parametrize("reason", [None, FinishReason.STOP])
def test_token_outside_the_vocabulary_is_a_typed_error(
    tokenizer: Tokenizer, token_id: int, reason: FinishReason | None
) -> None:
    """Also as the token it stopped at, and also when no text is wanted."""
    for wants_text in (True, False):
        sequence = Sequence(0, _request(output=OutputChoices(text=wants_text)), tokenizer)
        with pytest.raises(UnknownTokenError, match=str(token_id)):
            sequence.feed(_output([token_id], reason))


def test_prompt_that_ends_inside_a_character_does_not_leak(tokenizer: Tokenizer) -> None:
    """The first delta completes the character and shows nothing else of the prompt."""
    *head, last = tokenizer.encode("Happy birthday 🎂")
    assert _run(tokenizer, _request(prompt=tuple(head)), [last])[0] == "🎂"
