"""Forms are tried out in a process that may die of them."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.structured_output.form import Form, FormError, Kind
from core.structured_output.trial_process import TrialProcess


@pytest.fixture(scope="module")
def trials(tokenizer_folder: Path) -> Iterator[TrialProcess]:
    trials = TrialProcess(tokenizer_folder, 1000)
    yield trials
    trials.close()


def chain(length: int) -> str:
    """Rules that lead into each other."""
    rules = [f"r{i} ::= r{i + 1}" for i in range(length)]
    return "\n".join(["root ::= r0", *rules, f'r{length} ::= "x"'])


def properties(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"property {i}": {"type": "string"} for i in range(count)}}


def references(count: int) -> dict[str, Any]:
    links = {f"d{i}": {"properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(count)}
    return {"$defs": {**links, f"d{count}": {}}, "$ref": "#/$defs/d0"}


HOSTILE: dict[str, tuple[Kind, str]] = {
    "repeated repeats": ("regex", "(a{1000}){1000}"),
    "thrice": ("regex", "((a{1000}){1000}){1000}"),
    "parentheses": ("regex", "(" * 20_000 + "a" + ")" * 20_000),
    "chain of rules": ("grammar", chain(3000)),
    "nested EBNF": ("grammar", "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000),
    "chain of references": ("json", json.dumps(references(1000))),
    "nested schema": ("json", '{"items":' * 6000 + "{}" + "}" * 6000),
    "pattern": ("json", json.dumps({"type": "string", "pattern": "^(a{1000}){1000}$"})),
    "all of any": (
        "json",
        json.dumps({"allOf": [{"oneOf": [{"required": [f"{i}{j}"]} for j in "ab"]} for i in range(20)]}),
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_forms_are_refused(trials: TrialProcess, name: str) -> None:
    """Whatever they do to the process, the next form is compiled by another."""
    with pytest.raises(FormError):
        trials.write_grammar(Form(*HOSTILE[name]))
    assert trials.write_grammar(Form("regex", "a+"))


@pytest.mark.parametrize(
    "form",
    [
        Form("json", json.dumps(properties(1000))),
        Form("json", json.dumps({"enum": [f"value {i}" for i in range(3000)]})),
        Form("grammar", chain(100)),
        Form("json", json.dumps({"type": "array", "items": {"type": "array", "minItems": 100_000}})),
        Form("grammar", 'root ::= root root | "a" | ""'),
    ],
    ids=lambda form: form.text[:20],
)
def test_large_forms_are_taken(trials: TrialProcess, form: Form) -> None:
    """What is large, deep or ambiguous in moderation compiles."""
    assert trials.write_grammar(form)


def test_closed(tokenizer_folder: Path) -> None:
    """A trial that comes too late fails, and no process is left, not even a dead one."""
    before = psutil.Process().children()
    trials = TrialProcess(tokenizer_folder, 1000)
    trials.write_grammar(Form("regex", "a"))
    trials.end()
    for _ in range(2):
        with pytest.raises(FormError, match="the engine shuts down"):
            trials.write_grammar(Form("regex", "a"))
    trials.start()
    trials.close()
    trials.close()
    assert psutil.Process().children() == before


def test_a_process_that_somebody_kills_is_no_fault_of_the_form(trials: TrialProcess) -> None:
    """Neither while it has nothing to do, nor with a form in hand."""
    trials.start()
    trial().kill()
    assert trials.write_grammar(Form("regex", "b"))
    trial().suspend()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(trials.write_grammar, Form("regex", "c"))
        trial().kill()
        assert answer.result()


def test_signals_of_a_service_manager_are_for_the_core(trials: TrialProcess) -> None:
    """It may have requests to end, which come before it ends this process."""
    assert trials.write_grammar(Form("regex", "a"))
    before = trial()
    for signum in (signal.SIGTERM, signal.SIGINT):
        before.send_signal(signum)
    assert trials.write_grammar(Form("regex", "a"))
    assert trial() == before


def test_a_process_that_never_answers_is_ended(tokenizer_folder: Path) -> None:
    """And the form refused, when a second one has not answered either."""
    trials = TrialProcess(tokenizer_folder, 1000, timeout_s=0)
    with pytest.raises(FormError, match="too large, to compile"):
        trials.write_grammar(Form("regex", "a"))
    trials.close()


def trial() -> psutil.Process:
    """The one that runs."""
    (process,) = [child for child in psutil.Process().children() if "core.structured_output.trial" in child.cmdline()]
    return process
