"""Ranks in processes of their own: what one is told all do, and none outlives another, or the core."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import psutil
import pytest

from core.config import ModelConfig
from core.executor.fake import FAKE_MODEL, FakeExecutor, fake_embed
from core.executor.interface import MEMORY_PARTS, CachedRequest, ModelRunnerOutput, NewRequest, SchedulerOutput
from core.executor.multi_process import MultiProcessExecutor, RankLostError
from core.hosts import Hosts
from core.prompt_embeds import PromptEmbeds
from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor
from tests.core.executor.fake_rank import MODULE, fake_ranks
from tests.core.front_end import PATIENCE_S, ROOT

GREEDY = SamplingParams(temperature=0.0, logprobs=40)


@pytest.fixture(scope="module")
def executor() -> Iterator[MultiProcessExecutor]:
    executor = fake_ranks()
    executor.initialize_kv_cache(8, 16)
    yield executor
    executor.shutdown()


def prefill(request_id: str, embeds: PromptEmbeds | None = None) -> SchedulerOutput:
    request = NewRequest(request_id, [1, 2, 3], 3, GREEDY, 0, [[1]], 0, embeds)
    return SchedulerOutput([request], [], {request_id: 3}, [])


def decode(request_id: str) -> SchedulerOutput:
    return SchedulerOutput([], [CachedRequest(request_id, [], 3)], {request_id: 1}, [])


def forget(request_id: str) -> SchedulerOutput:
    return SchedulerOutput([], [], {}, [request_id])


def wait_for_ends(pids: list[int]) -> None:
    """Of processes that need not be children."""
    for pid in pids:
        try:
            pid_fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(pid_fd, select.POLLIN)
        assert poll.poll(PATIENCE_S * 1000), pid
        os.close(pid_fd)


class Watch:
    """Of an executor's failure."""

    def __init__(self, executor: MultiProcessExecutor) -> None:
        self.executor = executor
        self.count = 0
        self._told = threading.Event()
        executor.on_failure(self._tell)

    def _tell(self) -> None:
        self.count += 1
        self._told.set()

    def wait(self) -> None:
        """No process is left then, and no order taken."""
        assert self._told.wait(PATIENCE_S)
        wait_for_ends(list(self.executor.pids.values()))
        with pytest.raises(RankLostError):
            self.executor.execute_model(prefill("late"))
        self.executor.shutdown()
        assert self.count == 1


def test_steps_are_those_of_one_rank(executor: MultiProcessExecutor) -> None:
    """Two in flight; arrays go and come with their values."""
    alone = FakeExecutor()
    alone.initialize_kv_cache(8, 16)
    embeds = PromptEmbeds(Tensor(fake_embed([1, 2, 3]) * 7), np.array([True, False, True]))
    for work in (prefill("a"), forget("a"), prefill("b", embeds)):
        found, expected = executor.execute_model(work).result(), alone.execute_model(work).result()
        assert found.sampled_token_ids == expected.sampled_token_ids
        for request_id, lists in expected.logprobs.items():
            for ours, theirs in zip(lists[:3], found.logprobs[request_id][:3], strict=True):
                np.testing.assert_array_equal(ours, theirs)
    steps: list[Future[ModelRunnerOutput]] = [executor.execute_model(work) for work in (decode("b"), forget("b"))]
    assert len(steps[0].result().sampled_token_ids["b"]) == 1
    assert steps[1].result() == ModelRunnerOutput()


def test_the_poorest_rank_counts(executor: MultiProcessExecutor) -> None:
    """Rank 0 has 1000 bytes for its KV cache, rank 1 has 2000."""
    assert executor.model_info == FAKE_MODEL
    assert executor.memory_left(512, 64).kv_cache_bytes == 1000


def test_all_ranks_answer(executor: MultiProcessExecutor) -> None:
    """In their order; what a rank refuses is raised, and it goes on."""
    memory = executor.collective_rpc("get_memory_usage", None, [], {})
    assert memory == [{"weights": 1000, "kv_cache": 8 * 16 * 8}] * 2
    with pytest.raises(ValueError, match="method must be one of check_health"):
        executor.collective_rpc("exec", None, [], {})
    assert executor.collective_rpc("check_health", 60.0, [], {}) == [None, None]


def test_all_ranks_sleep_and_wake(executor: MultiProcessExecutor) -> None:
    """Part by part."""
    executor.sleep()
    assert executor.asleep_parts == {*MEMORY_PARTS}
    executor.wake_up(["weights"])
    assert executor.asleep_parts == {"kv_cache"}
    executor.wake_up(MEMORY_PARTS)
    assert executor.asleep_parts == set()


def test_adapters_are_loaded_by_all(executor: MultiProcessExecutor) -> None:
    """Beside the steps; one that some rank cannot load is not loaded, and why is said."""
    executor.load_lora(1, "/adapters/a").result()
    with pytest.raises(ValueError, match=r"broken-on-1/adapter_config\.json: r is missing"):
        executor.load_lora(2, "broken-on-1").result()
    work = prefill("with-lora")
    work.new_requests[0].lora = 1
    assert executor.execute_model(work).result().sampled_token_ids.keys() == {"with-lora"}
    executor.execute_model(forget("with-lora")).result()
    executor.unload_lora(1)
    assert executor.collective_rpc("check_health", None, [], {}) == [None, None]


def test_profiles(executor: MultiProcessExecutor) -> None:
    """Started and stopped on all; one that was never started cannot be stopped."""
    executor.start_profile("night", 0, 5)
    executor.stop_profile()
    with pytest.raises(RuntimeError, match="no profile was started"):
        executor.stop_profile()


def test_signals_that_go_to_all_processes_are_the_cores_to_handle(executor: MultiProcessExecutor) -> None:
    """Ranks are in sessions of their own and outlive SIGINT and SIGTERM, as a drain needs them to."""
    for pid in executor.pids.values():
        assert os.getsid(pid) == pid
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
    assert executor.collective_rpc("check_health", None, [], {}) == [None, None]


def test_a_rank_that_is_killed_takes_the_step_and_the_others_along() -> None:
    """The step that hangs for it ends with an exception that says which rank, and how it died."""
    watch = Watch(fake_ranks("hangs-in-steps"))
    step = watch.executor.execute_model(prefill("a"))
    with pytest.raises(TimeoutError, match=r"2 of 2 ranks have not answered in 0\.01 s"):
        watch.executor.collective_rpc("check_health", 0.01, [], {})
    os.kill(watch.executor.pids[1], signal.SIGKILL)
    assert str(step.exception(PATIENCE_S)) == "rank 1 is gone: signal 9 (Killed)"
    watch.wait()


def test_a_rank_that_raises_frees_the_one_that_waits_for_it() -> None:
    """Rank 0 hangs in a collective that rank 1 will not come to; it is killed."""
    watch = Watch(fake_ranks("raises-in-steps"))
    step = watch.executor.execute_model(prefill("a"))
    assert str(step.exception(PATIENCE_S)) == "rank 1 failed: KeyError('nobody')"
    watch.wait()


def test_a_rank_that_dies_while_nothing_runs() -> None:
    """It is noticed all the same, also by whoever asks to be told later."""
    executor = fake_ranks()
    os.kill(executor.pids[0], signal.SIGKILL)
    Watch(executor).wait()
    Watch(executor).wait()


@pytest.mark.parametrize(
    ("device", "num_cores", "error"),
    [
        ("cuda:1", 1, "device must be cpu or cuda with tensor_parallel_size 2: every rank has a GPU of its own"),
        ("cuda", 2, "2 cores on a host with tensor_parallel_size 2 would share its GPUs"),
    ],
)
def test_gpus_that_ranks_would_share_are_refused(device: str, num_cores: int, error: str) -> None:
    """Before anything is started."""
    config = ModelConfig(Path("whole"), device=device, num_cores_here=num_cores)
    with pytest.raises(ValueError, match=error):
        MultiProcessExecutor(config, Hosts(2), module="no.such.module")


def test_a_rank_that_cannot_load() -> None:
    """Its words are raised, though the other still loads; no process is left."""
    with pytest.raises(ValueError, match="is-not-there: no such file, on rank 1 of 2"):
        fake_ranks("is-not-there")


def test_a_load_that_is_interrupted() -> None:
    """By a signal whose handler raises, as SIGTERM's does in a core: it leaves no process, though both ranks hang."""
    before = psutil.Process().children()
    with pytest.raises(KeyboardInterrupt):
        fake_ranks("interrupts-its-core")
    assert psutil.Process().children() == before


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_ranks_do_not_outlive_their_core(stopped: bool) -> None:
    """Killed with SIGKILL, it can say nothing; a rank that is stopped or hangs in a step goes all the same."""
    command = [sys.executable, "-m", MODULE, "core", "hangs-in-steps"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as core:
        assert core.stdout is not None
        pids = [int(word) for word in core.stdout.readline().split()]
        if stopped:
            os.kill(pids[0], signal.SIGSTOP)
        core.kill()
        wait_for_ends(pids)


def test_shutdown_leaves_no_process() -> None:
    """Not even with a step that never ends; it may be called twice."""
    executor = fake_ranks("hangs-in-steps")
    step = executor.execute_model(prefill("a"))
    executor.shutdown()
    executor.shutdown()
    wait_for_ends(list(executor.pids.values()))
    assert isinstance(step.exception(), RuntimeError)
    with pytest.raises(RuntimeError, match="no order after shutdown"):
        executor.execute_model(prefill("b"))
