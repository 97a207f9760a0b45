"""The coordinator as a child of the gateway."""

import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from service.cli.options.cores import COORDINATOR_COMMAND
from service.cores.coordinator_process import CoordinatorProcess
from service.cores.core_process import CoreLoadError


@pytest.mark.parametrize("host", [None, "127.0.0.1", "::1"])
async def test_its_life(host: str | None) -> None:
    """It says where it listens; it goes on when it is signalled; it ends when no core needs it."""
    with TemporaryDirectory(prefix="sg") as folder:
        coordinator = CoordinatorProcess(COORDINATOR_COMMAND, 2, Path(folder), host)
        addresses = vars(await coordinator.addresses()).values()
        where = f"ipc://{folder}/" if host is None else "tcp://[::1]:" if ":" in host else "tcp://127.0.0.1:"
        assert all(address.startswith(where) for address in addresses)
        assert len({*addresses}) == 3
        process = psutil.Process(coordinator.pid)
        process.send_signal(signal.SIGTERM)
        assert not coordinator.has_shut_down
        await coordinator.end()
        assert coordinator.has_shut_down
        assert not process.is_running()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("/no/such/program",), "cannot start the coordinator /no/such/program: .*No such file"),
        (COORDINATOR_COMMAND, r"failed to start: its process \d+ ended with exit code 1: cannot listen: No such file"),
        ((sys.executable, "-c", "print('hello')"), r"does not say where it listens, but b'hello\\n'"),
    ],
)
async def test_one_that_does_not_start(command: tuple[str, ...], message: str) -> None:
    """The error says what ended it, in its own words."""
    with pytest.raises(CoreLoadError, match=message):
        await CoordinatorProcess(command, 2, Path("/no/such/folder"), None).addresses()
