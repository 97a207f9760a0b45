"""An engine whose requests follow forms: they wait for their grammars, and keep to them, beside all others."""

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from core.engine import EngineCore
from core.executor.fake import FAKE_MODEL, FakeExecutor
from core.request import Request
from core.structured_output.constraint import Constraint
from core.structured_output.grammars import Grammars
from core.structured_output.masks import NUM_MASK_THREADS
from core.wire.messages import REFUSED, EngineCoreOutput, FinishReason
from core.wire.resume import Resume, resuming
from core.wire.sampling_params import SamplingParams, StructuredOutputs
from tests.core.builders import add, expected_tokens, make_engine, run_to_end, step, tokens_of
from tests.core.structured_output.vocabulary_files import EOS

PROMPT = (1, 2, 3)


class Structured:
    """An engine, and what its requests said."""

    def __init__(self, grammars: Grammars, tokenizer: tokenizers.Tokenizer, **options: Any) -> None:
        self.engine: EngineCore = make_engine(grammars=grammars, **options)
        self.outputs: dict[str, list[EngineCoreOutput]] = {}
        self.eos = tokenizer.token_to_id(EOS)
        self._tokenizer = tokenizer
        self._progress = threading.Event()

    def add(self, request_id: str, form: StructuredOutputs | None, **params: Any) -> None:
        params = {"temperature": 0.0, "max_tokens": 40, "eos_token_id": self.eos, **params}
        add(self.engine, request_id, PROMPT, structured_outputs=form, **params)

    def step(self) -> None:
        for request_id, output in step(self.engine).items():
            self.outputs.setdefault(request_id, []).append(output)

    def run(self) -> None:
        """To the end of all requests, without a step while there is nothing to do."""
        self.engine.on_progress(self._progress.set)  # another engine may have used the grammars meanwhile
        while self.engine.has_requests() or self.engine.num_unfinished_requests():
            if self.engine.has_requests():
                self.step()
            else:
                assert self._progress.wait(30)
                self._progress.clear()

    def text(self, request_id: str) -> str:
        return self._tokenizer.decode(tokens_of(self.outputs[request_id]))

    def end(self, request_id: str) -> tuple[FinishReason | None, int | str | None]:
        last = self.outputs[request_id][-1]
        return last.finish_reason, last.stop_reason


@pytest.fixture(scope="module")
def grammars(tokenizer_folder: Path) -> Iterator[Grammars]:
    grammars = Grammars(tokenizer_folder, FAKE_MODEL.vocab_size)
    yield grammars
    grammars.close()


Make = Callable[..., Structured]


@pytest.fixture
def make(grammars: Grammars, tokenizer_folder: Path) -> Make:
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    return lambda **options: Structured(grammars, tokenizer, **options)


BOTH = pytest.mark.parametrize(
    "options", [{}, {"async_scheduling": True, "executor": "late"}], ids=["one by one", "with a step in flight"]
)


def engine_options(options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "executor": FakeExecutor(runs_late=True)} if options else {}


@BOTH
def test_every_request_keeps_to_its_own_form(make: Make, options: dict[str, Any]) -> None:
    """Of any kind, beside one that has none and gets the tokens it would have had alone."""
    structured = make(**engine_options(options))
    forms = {
        "regex": StructuredOutputs(regex="[0-9]{3}-[a-c]{2}"),
        "choice": StructuredOutputs(choice=["yes", "no"]),
        "json": StructuredOutputs(json={"enum": ["foo", "bar"]}),
        "grammar": StructuredOutputs(grammar='root ::= "(" [a-f]{3} ")"'),
    }
    for kind, form in forms.items():
        structured.add(kind, form)
    structured.add("free", None, eos_token_id=None)
    structured.run()
    assert structured.text("choice") in ("yes", "no")
    assert structured.text("json") in ('"foo"', '"bar"')
    assert re.fullmatch("[0-9]{3}-[a-c]{2}", structured.text("regex"))
    assert re.fullmatch(r"\([a-f]{3}\)", structured.text("grammar"))
    assert tokens_of(structured.outputs["free"]) == expected_tokens(PROMPT, 40)
    for kind in forms:
        assert structured.end(kind) == (FinishReason.STOP, None)
        assert tokens_of(structured.outputs[kind])[-1] == structured.eos


def test_a_request_that_waits_for_its_grammar_holds_nobody_up(make: Make) -> None:
    """It waits beside the queue, counted as skipped; others run meanwhile, and without any the engine rests."""
    structured = make()
    structured.add("slow", StructuredOutputs(json={"type": "object"}, whitespace_pattern="a"))
    structured.add("free", None, eos_token_id=None, max_tokens=3)
    assert structured.engine.request_counts() == (2, 0)
    outputs, has_run = structured.engine.step()
    assert has_run
    assert [output.request_id for message in outputs.values() for output in message.outputs] == ["free"]
    structured.run()
    assert structured.end("slow")[0] is FinishReason.LENGTH or structured.text("slow").startswith("{")


@BOTH
def test_bad_forms_are_refused_and_nobody_else_notices(make: Make, options: dict[str, Any]) -> None:
    """Each by its field, also after a good one."""
    structured = make(**engine_options(options))
    structured.add("free", None, eos_token_id=None)
    structured.add("good", StructuredOutputs(regex="foo"))
    bad = {
        "json": StructuredOutputs(json="{"),
        "items": StructuredOutputs(json={"items": 5}),
        "regex": StructuredOutputs(regex="("),
        "grammar": StructuredOutputs(grammar="root ::= other"),
        "structural_tag": StructuredOutputs(structural_tag="[]"),
        "hostile": StructuredOutputs(regex="(a{1000}){1000}"),
    }
    for name, form in bad.items():
        structured.add(name, form)
    structured.run()
    assert structured.text("good") == "foo"
    assert tokens_of(structured.outputs["free"]) == expected_tokens(PROMPT, 40)
    for name, form in bad.items():
        (output,) = structured.outputs[name]
        assert output.finish_reason is FinishReason.ERROR
        kind = next(k for k in ("json", "regex", "grammar", "structural_tag") if getattr(form, k) is not None)
        assert str(output.stop_reason).startswith(f"{REFUSED}structured_outputs.{kind} ")
    assert not structured.engine.scheduler.requests


def test_without_a_tokenizer_it_is_refused_at_once() -> None:
    """By its name."""
    with pytest.raises(ValueError, match="structured_outputs is not supported: this engine has no tokenizer"):
        add(make_engine(), structured_outputs=StructuredOutputs(regex="a"))


def test_aborted_while_it_waits(make: Make) -> None:
    """It is gone, and one of the same form that waits beside it has its answer."""
    structured = make()
    form = StructuredOutputs(regex="ba[r-z]{2}")
    structured.add("gone", form)
    structured.add("stays", form)
    structured.engine.abort_requests(["gone"])
    structured.run()
    assert "gone" not in structured.outputs
    assert structured.end("stays") == (FinishReason.STOP, None)
    structured.engine.check_integrity()


def test_all_are_aborted_while_they_wait(make: Make) -> None:
    """Each has its final output."""
    structured = make()
    for number in range(3):
        structured.add(f"r{number}", StructuredOutputs(regex=f"never{number}"))
    (message,) = structured.engine.abort_all().values()
    assert [output.finish_reason for output in message.outputs] == [FinishReason.ABORT] * 3
    structured.run()
    structured.engine.check_integrity()


@BOTH
def test_preempted_requests_go_on_where_they_were(make: Make, options: dict[str, Any]) -> None:
    """With too few blocks for all of them, the texts are those of requests that had the engine for themselves."""
    forms = [StructuredOutputs(regex=f"[a-z]{{20,30}}{number}") for number in range(4)]
    alone, crowded = make(), make(num_blocks=14, **engine_options(options))
    for number, form in enumerate(forms):
        alone.add(f"r{number}", form)
        alone.run()
        crowded.add(f"r{number}", form)
    crowded.run()
    assert crowded.engine.scheduler.num_preemptions > 0
    for number in range(4):
        assert crowded.text(f"r{number}") == alone.text(f"r{number}")


def test_ignored_eos(make: Make) -> None:
    """The request ends with its grammar: nothing could follow, and no token says so."""
    structured = make()
    structured.add("r", StructuredOutputs(choice=["foo"]), ignore_eos=True, eos_token_id=None)
    structured.run()
    assert structured.text("r") == "foo"
    assert structured.end("r") == (FinishReason.STOP, None)


def test_stop_tokens_may_follow_a_complete_text(make: Make) -> None:
    """The request's own."""
    structured = make()
    structured.add("r", StructuredOutputs(choice=["foo"]), eos_token_id=None, stop_token_ids=[7])
    structured.run()
    assert structured.end("r") == (FinishReason.STOP, 7)


def test_token_that_breaks_the_form(make: Make) -> None:
    """A model runner that does not keep to the mask ends that request, and no other."""
    structured = make(executor=FakeExecutor(scripted_tokens={"r": [5]}))
    structured.add("r", StructuredOutputs(choice=["foo"]))
    structured.add("other", StructuredOutputs(choice=["foo"]))
    structured.run()
    assert structured.end("r")[0] is FinishReason.ERROR
    assert "structured_outputs.choice" in str(structured.end("r")[1])
    assert structured.text("other") == "foo"


def test_a_request_whose_mask_takes_long_holds_nobody_up(make: Make, grammars: Grammars) -> None:
    """It is left out of the steps meanwhile, also when a pause waits for it, and then goes on."""
    structured, goes_on = make(), threading.Event()
    structured.add("slow", StructuredOutputs(regex="fo{5,9}x"))
    structured.add("other", None, eos_token_id=None, max_tokens=8)
    while "slow" not in structured.outputs:
        structured.step()
    for _ in range(NUM_MASK_THREADS):
        grammars.masks.add(lambda: goes_on.wait() and None)
    structured.step()
    paused = structured.engine.call_utility("pause_scheduler", ["wait", False])
    while not structured.outputs["other"][-1].finish_reason:
        structured.step()
    structured.step()
    assert len(structured.outputs["slow"]) <= 2
    assert not paused.done()
    goes_on.set()
    structured.run()
    assert paused.done()
    assert structured.text("slow").startswith("fooooo")


class Broken(Grammars):
    """Raises what nobody has thought of."""

    def constrain(self, request: Request, asked: StructuredOutputs) -> Constraint:
        raise MemoryError(f"for {request.request_id}: {asked}")


def test_a_request_whose_form_cannot_even_be_begun_is_not_taken(tokenizer_folder: Path) -> None:
    """Its sender is told so, and gets no tokens besides."""
    engine = make_engine(grammars=Broken(tokenizer_folder, FAKE_MODEL.vocab_size))
    with pytest.raises(MemoryError):
        add(engine, "form", PROMPT, structured_outputs=StructuredOutputs(regex="a"))
    assert engine.num_unfinished_requests() == 0
    assert run_to_end(engine) == {}
    engine.check_integrity()


def test_a_form_that_no_thread_can_compile_ends_its_request(tokenizer_folder: Path) -> None:
    """As an error, once; the others go on."""
    grammars = Grammars(tokenizer_folder, FAKE_MODEL.vocab_size)
    grammars.close()  # It takes no more work, as if the system had no thread to give.
    engine = make_engine(grammars=grammars)
    add(engine, "form", PROMPT, structured_outputs=StructuredOutputs(regex="a"))
    add(engine, "plain", PROMPT, max_tokens=3)
    received = run_to_end(engine)
    assert [output.finish_reason for output in received["form"]] == [FinishReason.ERROR]
    assert tokens_of(received["plain"]) == expected_tokens(PROMPT, 3)


def test_a_form_that_another_core_began(make: Make) -> None:
    """Is kept to from where the output is; what does not follow it is told."""
    structured = make()
    form = StructuredOutputs(regex="[0-9]{3}-[a-c]{2}")
    structured.add("r", form)
    structured.run()
    whole = tokens_of(structured.outputs["r"])
    for cut in range(len(whole)):
        told = resuming(SamplingParams(temperature=0.0), Resume(whole[:cut], "r")).extra_args
        structured.add(f"r~{cut}", form, extra_args=told)
    wrong = resuming(SamplingParams(temperature=0.0), Resume([*reversed(whole)], "r")).extra_args
    structured.add("wrong", form, extra_args=wrong)
    structured.run()
    for cut in range(len(whole)):
        assert tokens_of(structured.outputs[f"r~{cut}"]) == whole[cut:]
        assert structured.end(f"r~{cut}") == (FinishReason.STOP, None)
    assert structured.end("wrong") == (FinishReason.ERROR, "the output so far does not follow structured_outputs.regex")
