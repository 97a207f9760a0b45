"""What a front end sees when something goes wrong inside its core process, as one table."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from core.wire.messages import FinishReason
from tests.core.faulty_core import VICTIM
from tests.core.front_end import CoreProcess, FrontEnd

ENDLESS = 8000
CALL_ID = 7
Sight = Callable[[FrontEnd, CoreProcess], None]


def an_add(front_end: FrontEnd, _core: CoreProcess) -> None:
    front_end.add(VICTIM, max_tokens=ENDLESS)


def an_abort(front_end: FrontEnd, _core: CoreProcess) -> None:
    front_end.abort(VICTIM)


def a_call(front_end: FrontEnd, _core: CoreProcess) -> None:
    front_end.call(CALL_ID, VICTIM)


def a_signal(number: int) -> Sight:
    return lambda _front_end, core: core.process.send_signal(number)


def error_of_one(front_end: FrontEnd, core: CoreProcess) -> None:
    """Of the victim, once; its neighbour goes on, and the core takes the next."""
    outputs = front_end.receive_until_finished(VICTIM)[VICTIM]
    assert [output.finish_reason for output in outputs] == [FinishReason.ERROR]
    goes_on(front_end, core)


def failure_of_one(front_end: FrontEnd, core: CoreProcess) -> None:
    """Of the call, which says why; requests go on."""
    assert "went wrong" in str(front_end.receive_answer(CALL_ID).failure_message)
    goes_on(front_end, core)


def goes_on(front_end: FrontEnd, core: CoreProcess) -> None:
    front_end.add("next", max_tokens=2)
    assert front_end.receive_until_finished("next")["next"][-1].finish_reason is FinishReason.LENGTH
    front_end.abort("neighbour")
    core.terminate()
    assert core.wait() == 0


def engine_core_dead(front_end: FrontEnd, core: CoreProcess) -> None:
    """As the last thing; a process that ends with a code of failure, and a log that says why."""
    assert all(output.request_id == "neighbour" for m in front_end.receive_dead() for output in m.outputs)
    assert core.wait() == 1
    assert "exiting: " in core.log


def hangup(number: int) -> Sight:
    """No last word: the process ends by a signal, and its connections with it."""

    def hung_up(_front_end: FrontEnd, core: CoreProcess) -> None:
        assert core.wait() == -number

    return hung_up


def silence_until_it_goes_on(front_end: FrontEnd, core: CoreProcess) -> None:
    """What was sent meanwhile is answered afterwards."""
    front_end.call(CALL_ID, "is_sleeping")
    core.process.send_signal(signal.SIGCONT)
    assert front_end.receive_answer(CALL_ID).result == (None, False)
    goes_on(front_end, core)


@pytest.mark.parametrize(
    ("fault", "cause", "sight"),
    [
        ("preprocess", an_add, error_of_one),
        ("add", an_add, error_of_one),
        ("encoding", an_add, error_of_one),
        ("utility", a_call, failure_of_one),
        ("utility later", a_call, failure_of_one),
        ("abort", an_abort, engine_core_dead),
        ("step", an_add, engine_core_dead),
        ("executor", an_add, engine_core_dead),
        ("panic in preprocess", an_add, engine_core_dead),
        ("panic in encoding", an_add, engine_core_dead),
        ("panic in step", an_add, engine_core_dead),
        ("panic in utility", a_call, engine_core_dead),
        ("abort in step", an_add, hangup(signal.SIGABRT)),
        ("abort in preprocess", an_add, hangup(signal.SIGABRT)),
        ("nothing", a_signal(signal.SIGKILL), hangup(signal.SIGKILL)),
        ("nothing", a_signal(signal.SIGSTOP), silence_until_it_goes_on),
    ],
)
def test_what_a_front_end_sees(tmp_path: Path, fault: str, cause: Sight, sight: Sight) -> None:
    """Of a fault that concerns one request its error; of any other that the core is gone: never nothing."""
    with (
        FrontEnd(tmp_path) as front_end,
        CoreProcess(front_end.address, "--fault", fault, module="tests.core.faulty_core") as core,
    ):
        front_end.accept()
        front_end.add("neighbour", max_tokens=ENDLESS)
        front_end.receive_first("neighbour")
        cause(front_end, core)
        sight(front_end, core)
