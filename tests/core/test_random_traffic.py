"""Whatever comes and goes, in whatever order: every request gets its own tokens, ends once, and nothing leaks.

One step at a time, and with the next step scheduled while one runs: then a step runs either as early as possible, when
it is started, or as late as possible, when it is waited for. What can happen in between lies between these two. And by
priority, with drafts.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.config import SchedulingPolicy
from core.executor.fake import FAKE_MODEL, FakeExecutor
from tests.core.builders import add, expected_tokens, flatten, make_engine, step


class RandomTraffic(RuleBasedStateMachine):
    """Up to four requests at once in a pool of eight blocks, so that they keep taking blocks from each other."""

    prompts: dict[str, Sequence[int]]
    async_scheduling = False
    runs_late = False
    kv_windows: tuple[int | None, ...] = (None,)
    scheduling_policy: SchedulingPolicy = "fcfs"
    num_speculative_tokens = 0
    max_num_batched_tokens = 7
    max_itl_stretch = 0.0
    vocab_size = FAKE_MODEL.vocab_size

    def __init__(self) -> None:
        super().__init__()
        model = msgspec.structs.replace(FAKE_MODEL, kv_windows=self.kv_windows, vocab_size=self.vocab_size)
        self.executor = FakeExecutor(model, on_step=self.abort_in_step, runs_late=self.runs_late)
        self.engine = make_engine(
            num_blocks=8 * len(self.kv_windows) + 1,
            max_num_seqs=4,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=32,
            async_scheduling=self.async_scheduling,
            scheduling_policy=self.scheduling_policy,
            num_speculative_tokens=self.num_speculative_tokens,
            max_itl_stretch=self.max_itl_stretch,
            executor=self.executor,
            clock=itertools.count().__next__,
        )
        self.prompts = {}
        self.received: dict[str, list[int]] = {}
        self.ended: set[str] = set()
        self.to_abort: list[str] = []
        self.pauses: list[Future[None]] = []

    def abort_in_step(self, _number: int) -> None:
        self.engine.aborts_queue.put(self.to_abort)
        self.ended.update(self.engine.scheduler.requests.keys() & self.to_abort)
        self.to_abort = []

    # Prompts of few different tokens share prefixes; lengths lie around multiples of the block size. A stop token makes
    # some end earlier than the scheduler can know.
    @rule(
        prompt=st.lists(st.integers(1, 2), min_size=1, max_size=25),
        max_tokens=st.integers(1, 20),
        stops_after=st.none() | st.integers(0, 19),
        priority=st.integers(0, 2),
    )
    def add(self, prompt: list[int], max_tokens: int, stops_after: int | None, priority: int) -> None:
        request_id = f"r{len(self.prompts)}"
        self.prompts[request_id] = prompt
        self.received[request_id] = []
        stops = [] if stops_after is None else self.expected_tokens(prompt, stops_after + 1)[-1:]
        add(self.engine, request_id, prompt, priority=priority, max_tokens=max_tokens, stop_token_ids=stops)

    def expected_tokens(self, prompt: Sequence[int], count: int) -> list[int]:
        return expected_tokens(prompt, count, self.vocab_size)

    @rule(count=st.integers(1, 8))
    def step(self, count: int) -> None:
        for _ in range(count):
            for request_id, output in flatten([self.engine.step()[0]]).items():
                assert request_id not in self.ended
                self.received[request_id] += output.new_token_ids
                if output.finished:
                    self.ended.add(request_id)

    @precondition(lambda self: self.engine.scheduler.requests)
    @rule(data=st.data(), in_step=st.booleans())
    def abort(self, data: st.DataObject, in_step: bool) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.engine.scheduler.requests)))
        if in_step:
            self.to_abort.append(request_id)
            self.step(1)
        else:
            self.engine.abort_requests([request_id])
            self.ended.add(request_id)

    @rule()
    def reset(self) -> None:
        assert self.engine.scheduler.reset_prefix_cache(reset_running_requests=True)

    @rule(mode=st.sampled_from(["abort", "wait", "keep"]), clear_cache=st.booleans())
    def pause(self, mode: str, clear_cache: bool) -> None:
        self.pauses.append(self.engine.call_utility("pause_scheduler", [mode, clear_cache]))

    @rule()
    def resume(self) -> None:
        self.engine.call_utility("resume_scheduler", [])

    @invariant()
    def nothing_leaks(self) -> None:
        self.engine.check_integrity()

    @invariant()
    def every_token_is_right(self) -> None:
        for request_id, tokens in self.received.items():
            assert tokens == self.expected_tokens(self.prompts[request_id], len(tokens))

    def teardown(self) -> None:
        self.to_abort = []
        self.resume()
        for _ in range(len(self.prompts) * 100):
            self.step(1)
        self.step(1)
        assert self.ended == set(self.prompts)
        assert all(pause.done() for pause in self.pauses)
        assert self.engine.scheduler.kv_cache.is_unused
        assert not self.engine.has_requests()
        assert self.executor.request_ids == set()


class RandomTrafficEarly(RandomTraffic):
    async_scheduling = True


class RandomTrafficLate(RandomTraffic):
    async_scheduling = True
    runs_late = True


class RandomTrafficWindows(RandomTraffic):
    """Layers of three kinds: some tokens are seen by all of them, some by two, some by one."""

    kv_windows = (None, 6, 3)


class RandomTrafficWindowsLate(RandomTrafficLate):
    kv_windows = (None, 6, 3)


class RandomTrafficOneWindow(RandomTrafficEarly):
    """Nobody sees far: a request never holds all its blocks."""

    kv_windows = (5,)


class RandomTrafficDrafted(RandomTraffic):
    """Of three tokens each follows often: drafts are right, partly right and wrong."""

    scheduling_policy = "priority"
    num_speculative_tokens = 3
    vocab_size = 3


class RandomTrafficDraftedWindows(RandomTrafficDrafted):
    """What a wrong draft would have left behind a window is there again."""

    kv_windows = (None, 6, 3)


class RandomTrafficPaced(RandomTrafficDrafted):
    """Prompts fit into one step, but those that come beside answers in full flow are cut."""

    max_num_batched_tokens = 40
    max_itl_stretch = 1.01


class RandomTrafficPacedLate(RandomTrafficLate):
    max_num_batched_tokens = 40
    max_itl_stretch = 1.01


SETTINGS = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestRandomTraffic = RandomTraffic.TestCase
TestRandomTraffic.settings = SETTINGS
TestRandomTrafficEarly = RandomTrafficEarly.TestCase
TestRandomTrafficEarly.settings = SETTINGS
TestRandomTrafficLate = RandomTrafficLate.TestCase
TestRandomTrafficLate.settings = SETTINGS
TestRandomTrafficWindows = RandomTrafficWindows.TestCase
TestRandomTrafficWindows.settings = SETTINGS
TestRandomTrafficWindowsLate = RandomTrafficWindowsLate.TestCase
TestRandomTrafficWindowsLate.settings = SETTINGS
TestRandomTrafficOneWindow = RandomTrafficOneWindow.TestCase
TestRandomTrafficOneWindow.settings = SETTINGS
TestRandomTrafficDrafted = RandomTrafficDrafted.TestCase
TestRandomTrafficDrafted.settings = SETTINGS
TestRandomTrafficDraftedWindows = RandomTrafficDraftedWindows.TestCase
TestRandomTrafficDraftedWindows.settings = SETTINGS
TestRandomTrafficPaced = RandomTrafficPaced.TestCase
TestRandomTrafficPaced.settings = SETTINGS
TestRandomTrafficPacedLate = RandomTrafficPacedLate.TestCase
TestRandomTrafficPacedLate.settings = SETTINGS


@pytest.mark.parametrize(
    ("async_scheduling", "runs_late", "num_speculative_tokens"),
    [(False, False, 0), (True, False, 0), (True, True, 0), (False, False, 4)],
    ids=["sync", "early", "late", "drafted"],
)
def test_heavy_traffic_equals_the_serial_run(
    async_scheduling: bool, runs_late: bool, num_speculative_tokens: int
) -> None:
    """300 requests, a third aborted on the way, some while a step runs, in a pool that preempts all the time."""
    draw = random.Random(7)
    vocab_size = 4 if num_speculative_tokens else FAKE_MODEL.vocab_size
    executor = FakeExecutor(
        msgspec.structs.replace(FAKE_MODEL, vocab_size=vocab_size),
        runs_late=runs_late,
        on_step=lambda _: abort_some(engine.aborts_queue.put, 0.1),
    )
    engine = make_engine(
        num_blocks=20,
        max_num_seqs=6,
        max_num_batched_tokens=16,
        max_model_len=60,
        async_scheduling=async_scheduling,
        num_speculative_tokens=num_speculative_tokens,
        executor=executor,
    )
    prompts = {f"r{i}": [draw.randint(1, 3) for _ in range(draw.randint(1, 30))] for i in range(300)}
    received: dict[str, list[int]] = {request_id: [] for request_id in prompts}
    unsent, aborted = list(prompts), set[str]()

    def abort_some(abort: Callable[[list[str]], None], share: float) -> None:
        if draw.random() < share and engine.scheduler.requests:
            aborted.add(draw.choice(sorted(engine.scheduler.requests)))
            abort(sorted(aborted))

    while unsent or engine.has_requests():
        for request_id in unsent[: draw.randint(0, 3)]:
            add(engine, unsent.pop(0), prompts[request_id], max_tokens=20)
        abort_some(engine.abort_requests, 0.1)
        for request_id, output in step(engine).items():
            received[request_id] += output.new_token_ids
    for request_id, tokens in received.items():
        expected = expected_tokens(prompts[request_id], 20, vocab_size)
        assert tokens == (expected[: len(tokens)] if request_id in aborted else expected)
    assert engine.scheduler.num_preemptions > 20
    assert engine.scheduler.kv_cache.is_unused
