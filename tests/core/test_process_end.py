"""How core processes end, as a front end sees it: told to, broken, or left alone."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from core.wire.messages import FinishReason
from tests.core.front_end import ENDLESS, PATIENCE_S, ROOT, CoreProcess, FrontEnd

BROKEN = "tests.core.broken_core"


def test_sigterm_aborts(two_clients: FrontEnd) -> None:
    """Without a shutdown timeout every request ends as aborted, per client, in the genuine form; exit code 0."""
    with CoreProcess(two_clients.address, "--tokens-per-second", "20") as core:
        two_clients.accept()
        for client_index, request_ids in enumerate((["a", "b"], ["c"])):
            for request_id in request_ids:
                two_clients.add(request_id, client_index=client_index, max_tokens=ENDLESS)
        core.wait_for_log("ready")
        for client_index in range(2):
            two_clients.receive(client_index)
        core.terminate()
        for client_index, request_ids in enumerate((["a", "b"], ["c"])):
            outputs = two_clients.receive_until_finished(*request_ids, client_index=client_index)
            assert {found[-1].finish_reason for found in outputs.values()} == {FinishReason.ABORT}
        assert core.wait() == 0


def test_sigterm_drains(front_end: FrontEnd) -> None:
    """With a shutdown timeout what runs goes on, what comes is refused, a second SIGTERM changes nothing."""
    arguments = ("--tokens-per-second", "20", "--shutdown-timeout", "600")
    with CoreProcess(front_end.address, *arguments) as core:
        front_end.accept()
        front_end.add("running", max_tokens=ENDLESS)
        front_end.add("short", max_tokens=40)
        front_end.receive_first("short")
        core.terminate()
        core.wait_for_log("shutting down")
        front_end.add("late")
        front_end.call(7, "get_supported_tasks")
        core.terminate()
        late = front_end.receive_until_finished("late")["late"]
        assert [output.finish_reason for output in late] == [FinishReason.ABORT]
        assert front_end.receive_answer(7).failure_message == "Server shutting down"
        assert front_end.receive_until_finished("short")["short"][-1].finish_reason is FinishReason.LENGTH
        front_end.abort("running")
        assert core.wait() == 0


def test_drain_has_a_deadline(front_end: FrontEnd) -> None:
    """What still runs when the shutdown timeout ends is aborted by the core itself."""
    arguments = ("--tokens-per-second", "20", "--shutdown-timeout", "0.3")
    with CoreProcess(front_end.address, *arguments) as core:
        front_end.accept()
        front_end.add("a", max_tokens=ENDLESS)
        front_end.receive_first("a")
        core.process.send_signal(signal.SIGINT)
        assert front_end.receive_until_finished("a")["a"][-1].finish_reason is FinishReason.ABORT
        assert core.wait() == 0


def test_sigterm_while_idle(front_end: FrontEnd) -> None:
    """An idle core, blocked on its queue, ends at once and leaves no socket file of its own."""
    with CoreProcess(front_end.address, "--shutdown-timeout", "600") as core:
        front_end.accept()
        core.wait_for_log("ready")
        core.terminate()
        assert core.wait() == 0
    assert sorted(os.listdir(front_end.address.removeprefix("ipc://").rpartition("/")[0])) == [
        "handshake",
        "input0",
        "output0",
    ]


def test_signals_during_the_cleanup_change_nothing(front_end: FrontEnd) -> None:
    """What is being released is released, and the exit code stays 0."""
    with CoreProcess(front_end.address, "--fault", "signalled-leaving", module=BROKEN) as core:
        front_end.accept()
        core.wait_for_log("ready")
        core.terminate()
        assert core.wait() == 0
        assert "cleaned up" in core.log


def test_sigterm_before_init(front_end: FrontEnd) -> None:
    """A core that waits for INIT ends on SIGTERM, with the signal's exit code."""
    with CoreProcess(front_end.address) as core:
        front_end.receive_hello()
        core.terminate()
        assert core.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize(("fault", "code"), [("load-never", 128 + signal.SIGTERM), ("load-swallowing-exit", 1)])
def test_sigterm_while_loading(front_end: FrontEnd, fault: str, code: int) -> None:
    """A core that loads ends on SIGTERM, by force if the load goes on."""
    with CoreProcess(front_end.address, "--fault", fault, module=BROKEN) as core:
        front_end.receive_hello()
        front_end.send_init()
        core.wait_for_log("inside the load")
        core.terminate()
        assert core.wait() == code


def test_failing_load(front_end: FrontEnd) -> None:
    """A load that fails ends the process with code 1 and a log that says why."""
    with CoreProcess(front_end.address, "--fault", "load-failing", module=BROKEN) as core:
        front_end.receive_hello()
        front_end.send_init()
        assert core.wait() == 1
        assert "exiting: no such model" in core.log


@pytest.mark.parametrize("fault", ["crash", "hang-leaving"])
def test_crash_is_told_to_every_client(two_clients: FrontEnd, fault: str) -> None:
    """A step that raises: ENGINE_CORE_DEAD to every client, after the outputs before it; the process does not stay."""
    with CoreProcess(two_clients.address, "--fault", fault, module=BROKEN) as core:
        two_clients.accept()
        two_clients.add("a", client_index=1, max_tokens=ENDLESS)
        assert two_clients.receive_dead(0) == []
        assert [len(message.outputs) for message in two_clients.receive_dead(1)] == [1, 1]
        assert core.wait() == 1
        assert "the model exploded" in core.log
        assert ("exiting by force" in core.log) is (fault == "hang-leaving")


def test_a_leak_is_fatal(front_end: FrontEnd) -> None:
    """Found when the work is done, and told like any other death: such a core would soon refuse or mix up requests."""
    with CoreProcess(front_end.address, "--fault", "leak", module=BROKEN) as core:
        front_end.accept()
        front_end.add("a", max_tokens=1)
        assert [output.request_id for message in front_end.receive_dead() for output in message.outputs] == ["a"]
        assert core.wait() == 1
        assert "exiting: 7 free + 0 held != 8 usable blocks" in core.log


def test_lost_executor_is_fatal(front_end: FrontEnd) -> None:
    """An executor that fails while nothing runs ends the core all the same."""
    with CoreProcess(front_end.address, "--fault", "lose-executor", module=BROKEN) as core:
        front_end.accept()
        assert front_end.receive_dead() == []
        assert core.wait() == 1


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("bench.null_core", ("--tokens-per-second", "20", "--shutdown-timeout", "600")),
        (BROKEN, ("--fault", "hang", "--shutdown-timeout", "600")),
    ],
)
def test_gateway_dies(front_end: FrontEnd, module: str, arguments: tuple[str, ...]) -> None:
    """When the lifeline ends the core ends within seconds, whatever it is doing and however long it might drain."""
    read_end, write_end = os.pipe()
    arguments = (*arguments, "--lifeline-fd", str(read_end))
    with CoreProcess(front_end.address, *arguments, module=module, pass_fds=(read_end,)) as core:
        os.close(read_end)
        front_end.accept()
        front_end.add("a", max_tokens=ENDLESS)
        core.wait_for_log("ready")
        front_end.close()
        os.close(write_end)
        assert core.wait() == (1 if module == BROKEN else 0)
        assert "the gateway is gone" in core.log


def test_one_of_three_front_ends_leaves(tmp_path: Path) -> None:
    """Its requests end; the requests and calls of the other two are answered, each where it came from."""
    with (
        FrontEnd(tmp_path, num_clients=3) as front_end,
        CoreProcess(front_end.address, "--tokens-per-second", "20") as core,
    ):
        front_end.accept()
        for client_index in range(3):
            front_end.add(f"r{client_index}", client_index, max_tokens=ENDLESS)
        front_end.leave(2)
        core.wait_for_log("aborted 1 requests")
        for client_index in range(2):
            front_end.call(client_index, "is_sleeping", client_index=client_index)
            assert front_end.receive_answer(client_index, client_index).result == (None, False)
            front_end.abort(f"r{client_index}")
            front_end.add(f"s{client_index}", client_index)
            front_end.receive_until_finished(f"s{client_index}", client_index=client_index)


@pytest.mark.parametrize("scheme", ["ipc", "tcp"])
def test_the_last_front_end_leaves(tmp_path: Path, scheme: str) -> None:
    """A core that was started by hand does not outlive those it serves: it ends with code 1 and says why."""
    with (
        FrontEnd(tmp_path, num_clients=2, scheme=scheme) as front_end,
        CoreProcess(front_end.address, "--tokens-per-second", "20") as core,
    ):
        front_end.accept()
        front_end.add("a", max_tokens=ENDLESS)
        front_end.receive_first("a")
        front_end.close()
        assert core.wait() == 1
        assert "exiting: every front end is gone" in core.log
        assert "Traceback" not in core.log


def test_a_stuck_core_does_not_outlive_its_front_end(front_end: FrontEnd) -> None:
    """A step that never ends does not keep the process either."""
    with CoreProcess(front_end.address, "--fault", "hang", module=BROKEN) as core:
        front_end.accept()
        front_end.add("a")
        front_end.close()
        assert core.wait() == 1
        assert "exiting by force" in core.log


def test_survive_frontend(tmp_path: Path) -> None:
    """With --survive-frontend a core serves one front end after another, with one load, and ends well on SIGTERM."""
    with CoreProcess(f"ipc://{tmp_path}/handshake", "--survive-frontend", "--tokens-per-second", "20") as core:
        for num_served in range(1, 4):
            with FrontEnd(tmp_path) as front_end:
                front_end.accept()
                front_end.add("a", max_tokens=2)
                front_end.add("b", max_tokens=ENDLESS)
                outputs = front_end.receive_until_finished("a")["a"]
                assert [len(output.new_token_ids) for output in outputs] == [1, 1]
            core.wait_for_log(f"(?s)(the core stays for the next.*){{{num_served}}}")
        core.terminate()
        assert core.wait() == 0
        assert core.log.count("loading the engine") == 1


_ADOPT = """
import os, subprocess, sys, time
read_end, write_end = os.pipe()
command = [*sys.argv[1:], "--lifeline-fd", str(read_end)]
print(subprocess.Popen(command, pass_fds=(read_end,), stderr=subprocess.DEVNULL).pid, flush=True)
time.sleep(3600)
"""


def test_a_stopped_core_goes_with_its_gateway(front_end: FrontEnd) -> None:
    """SIGKILL for the gateway wakes a core that SIGSTOP has frozen, so that it sees the end of its lifeline."""
    core = [sys.executable, "-m", "bench.null_core", "--handshake-address", front_end.address]
    with subprocess.Popen([sys.executable, "-c", _ADOPT, *core], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        process = psutil.Process(int(parent.stdout.readline()))
        pid_fd = os.pidfd_open(process.pid)
        front_end.accept()
        process.suspend()
        parent.kill()
        assert select.select([pid_fd], [], [], PATIENCE_S)[0]
        os.close(pid_fd)
