"""One request that ends every core that begins it, and its neighbours, which survive it."""

import random

import pytest

from core.wire.messages import EngineCoreRequest
from core.wire.sampling_params import SamplingParams
from service.admission.live_call import LiveCall
from service.cores.suspects import STRIKES_OF_THE_GUILTY, TRIAL_TIMEOUT_S, Suspects
from service.output_stream import OutputStream
from tests.service.fake_core import READY

MAX_DEATHS = 8


def a_call(name: str) -> LiveCall:
    params = SamplingParams(temperature=0.0, max_tokens=None)
    request = EngineCoreRequest(name, [1], None, params, None, 0.0, None, None, None)
    return LiveCall(OutputStream([name]), [request])


class Core:
    """Gives each call a token, in an order of its own; ends at a call that is ``deadly`` once that has enough."""

    def __init__(self, deadly: dict[LiveCall, int]) -> None:
        self._deadly = deadly
        self.calls: list[LiveCall] = []

    def submit(self, calls: list[LiveCall]) -> None:
        for call in calls:
            list(call.submissions(READY))
        self.calls += calls

    def step(self) -> bool:
        """Whether it survives, and has given one token to each."""
        if any(len(call.requests[0].token_ids) == self._deadly.get(call, -1) for call in self.calls):
            return False
        for call in self.calls:
            call.requests[0].token_ids.append(1)
        return True


def deaths_until_rid_of(num_calls: int, deadly_after: int, num_steps_between: int = 20) -> tuple[int, list[LiveCall]]:
    """How many cores it takes, and who was convicted."""
    calls = [a_call(str(number)) for number in range(num_calls)]
    guilty = random.Random(num_calls).choice(calls)
    suspects, waiting, convicted = Suspects(), [*calls], list[LiveCall]()
    for death in range(MAX_DEATHS + 1):
        core = Core({guilty: deadly_after})
        for _ in range(num_steps_between):
            admitted = suspects.admitted(waiting)
            core.submit(admitted)
            waiting = [call for call in waiting if call not in admitted]
            if not core.step():
                break
        else:
            return death, convicted
        if (found := suspects.judge(core.calls)) is not None:
            convicted.append(found)
        waiting = [call for call in core.calls if call not in convicted] + waiting
    raise AssertionError(f"not after {MAX_DEATHS} cores, {convicted}")


@pytest.mark.parametrize("deadly_after", [0, 1, 5])
@pytest.mark.parametrize("num_calls", [1, 2, 3, 32, 200])
def test_the_guilty_one_is_found(num_calls: int, deadly_after: int) -> None:
    """Alone, whenever it ends the core, and before the limit of restarts."""
    num_deaths, convicted = deaths_until_rid_of(num_calls, deadly_after)
    assert len(convicted) == 1
    assert STRIKES_OF_THE_GUILTY <= num_deaths <= MAX_DEATHS


def test_who_is_given_something_is_not_suspected() -> None:
    """However often the cores end: something else ends them."""
    suspects, calls = Suspects(), [a_call(str(number)) for number in range(5)]
    for _ in range(20):
        core = Core({})
        core.submit(suspects.admitted(calls))
        assert len(core.calls) == 5
        assert core.step()
        assert suspects.judge(core.calls) is None


def test_a_trial_ends_when_its_time_is_up() -> None:
    """Who waits for a place in the core is given nothing, and the others do not wait for it for ever."""
    now = 0.0
    suspects, calls = Suspects(lambda: now), [a_call(name) for name in "abc"]
    for call in calls:
        call.num_strikes = 2
        list(call.submissions(READY))
    assert suspects.admitted(calls) == calls[:1]
    assert suspects.has_more(calls[1:])
    assert suspects.admitted(calls[1:]) == []
    now = TRIAL_TIMEOUT_S
    assert suspects.admitted(calls[1:]) == calls[1:2], "not more at once: the first has shown nothing"
    calls[1].stream.finish("b")
    calls[0].requests[0].token_ids.append(1)
    assert suspects.admitted(calls[2:]) == calls[2:]
    assert not suspects.has_more([])
