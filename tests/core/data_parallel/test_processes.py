"""Two lockstep cores and their coordinator, each a process, as a gateway starts them."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psutil
import pytest

from core.wire.messages import EngineAddresses, EngineInit, FinishReason, ParallelConfig
from tests.core.data_parallel.ranks import Listener
from tests.core.front_end import PATIENCE_S, ROOT, CoreProcess, FrontEnd, address_of

MODULE = "tests.core.data_parallel.lockstep_core"


class CoordinatorProcess:
    """``python -m core.data_parallel ARGS``, and what it said of its addresses."""

    def __init__(self, *args: str) -> None:
        self._lifeline_read, self.lifeline = os.pipe()
        command = [sys.executable, "-m", "core.data_parallel", *args, "--lifeline-fd", str(self._lifeline_read)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, pass_fds=(self._lifeline_read,), text=True
        )
        os.close(self._lifeline_read)
        assert self.process.stdout is not None
        self.addresses = json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Pair:
    """Both cores, each before a front end of its own, and the coordinator of both."""

    def __init__(self, folder: Path, cleanup: ExitStack) -> None:
        self.coordinator = CoordinatorProcess("--num-engines", "2", "--folder", str(folder))
        cleanup.callback(self.coordinator.close)
        self.listener = Listener(self.coordinator.addresses["frontend_stats_publish_address"])
        cleanup.callback(self.listener.close)
        self.front_ends = []
        self.cores = []
        for rank in range(2):
            (rank_folder := folder / str(rank)).mkdir()
            self.front_ends.append(cleanup.enter_context(FrontEnd(rank_folder, rank=rank)))
            flags = ("--data-parallel-rank", str(rank))
            self.cores.append(cleanup.enter_context(CoreProcess(self.front_ends[rank].address, *flags, module=MODULE)))
        self._accept()

    def _accept(self) -> None:
        config = ParallelConfig(
            data_parallel_master_ip="127.0.0.1", data_parallel_master_port=_free_port(), data_parallel_size=2
        )
        for front_end in self.front_ends:
            assert front_end.receive_hello().status == "HELLO"
            (inputs,), (outputs,) = front_end.inputs, front_end.outputs
            addresses = EngineAddresses([address_of(inputs)], [address_of(outputs)], **self.coordinator.addresses)
            init = msgspec.msgpack.encode(EngineInit(addresses, config))
            front_end.handshake.send_multipart([front_end.identity, init])
        self.responses = [front_end.receive_ready_response() for front_end in self.front_ends]
        for front_end in self.front_ends:
            assert front_end.receive_hello().status == "READY"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as cleanup:
        yield Pair(tmp_path, cleanup)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_life_of_a_pair(pair: Pair) -> None:
    """They say what they are, complete requests at each rank in wave after wave, rest, and end well when told to."""
    stats_address = pair.coordinator.addresses["frontend_stats_publish_address"]
    assert [(r.data_parallel_size, r.dp_stats_address) for r in pair.responses] == [(2, stats_address)] * 2
    titles = [psutil.Process(core.process.pid).cmdline()[0] for core in pair.cores]
    assert titles == ["sluicegate: EngineCore_DP0", "sluicegate: EngineCore_DP1"]
    for number in range(10):
        for front_end in pair.front_ends[: 1 + number % 2]:
            front_end.add(f"r{number}")
        for front_end in pair.front_ends[: 1 + number % 2]:
            received = front_end.receive_until_finished(f"r{number}")
            assert received[f"r{number}"][-1].finish_reason is FinishReason.LENGTH
        pair.listener.receive_until_drained()
    for core in pair.cores:
        core.terminate()
    assert [core.wait() for core in pair.cores] == [0, 0]
    os.close(pair.coordinator.lifeline)
    assert pair.coordinator.process.wait(PATIENCE_S) == 0


def test_rank_that_is_killed(pair: Pair) -> None:
    """The other one misses it in its next agreement: it says ENGINE_CORE_DEAD, and ends with an error."""
    pair.cores[1].process.send_signal(signal.SIGKILL)
    pair.cores[1].wait()
    pair.front_ends[0].add("r", max_tokens=50)
    pair.front_ends[0].receive_dead()
    assert pair.cores[0].wait() == 1
    assert "the ranks cannot agree" in pair.cores[0].log
    os.close(pair.coordinator.lifeline)


def test_rank_that_is_stopped(pair: Pair) -> None:
    """A rank that waits for one that is there but does nothing goes down all the same when it is told to."""
    pair.cores[1].process.send_signal(signal.SIGSTOP)
    pair.front_ends[0].add("r", max_tokens=10)
    pair.front_ends[0].receive_until_finished("r")
    pair.cores[0].terminate()
    assert pair.cores[0].wait() == 1
    assert "exiting by force" in pair.cores[0].log
    os.close(pair.coordinator.lifeline)


def test_coordinator_on_tcp() -> None:
    """It names the ports it was given, has a title of its own, and ends with its lifeline, not with a signal."""
    coordinator = CoordinatorProcess("--num-engines", "1", "--host", "127.0.0.1")
    assert all(not address.endswith(":0") for address in coordinator.addresses.values())
    assert "sluicegate: DPCoordinator" in psutil.Process(coordinator.process.pid).cmdline()
    for signum in (signal.SIGTERM, signal.SIGINT):
        coordinator.process.send_signal(signum)
    listener = Listener(coordinator.addresses["frontend_stats_publish_address"])
    assert listener.receive().wave == 0
    listener.close()
    os.close(coordinator.lifeline)
    assert coordinator.process.wait(PATIENCE_S) == 0
    coordinator.close()


@pytest.mark.parametrize("flags", [[], ["--folder", "/tmp", "--host", "localhost"], ["--folder", "/no/such/folder"]])
def test_coordinator_that_cannot_start(flags: list[str]) -> None:
    """What is wrong with the command line ends it at once."""
    command = [sys.executable, "-m", "core.data_parallel", "--num-engines", "1", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (1, 2)
    assert "Error" in done.stderr
    assert done.stdout == ""
