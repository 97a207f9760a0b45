import signal
from collections.abc import Iterator

import pytest

from bench.server_process import ServerError, ServerProcess

ADDRESSES = ["--grpc-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0"]


@pytest.fixture
def gateway() -> Iterator[ServerProcess]:
    """A server that waits for a core, and so is never ready."""
    arguments = ["gateway", "smollm2-135m", "--handshake-address", "tcp://127.0.0.1:0", *ADDRESSES]
    with ServerProcess(arguments) as process:
        yield process


def test_a_server_that_ends_instead_of_starting_is_an_error_with_its_log() -> None:
    """The caller sees why."""
    with (
        ServerProcess(["serve", "/no/such/model", *ADDRESSES]) as process,
        pytest.raises(ServerError, match=r"(?s)ended before it was ready; its log:.*/no/such/model"),
    ):
        process.wait_until_ready(timeout_s=30)


def test_a_server_that_is_not_ready_in_time_is_an_error(gateway: ServerProcess) -> None:
    """Nothing waits for ever."""
    with pytest.raises(ServerError, match=r"was not ready within 0\.1 s"):
        gateway.wait_until_ready(timeout_s=0.1)


def test_an_exit_code_other_than_0_is_an_error() -> None:
    """terminate() vouches for a clean drain."""
    with ServerProcess(["no-such-command"]) as process:
        assert process.wait(timeout_s=30) == 2
        with pytest.raises(ServerError, match="ended with exit code 2"):
            process.terminate(timeout_s=30)


def test_leaving_the_block_kills_what_lives(gateway: ServerProcess) -> None:
    """Also a server that was never ready."""
    gateway.kill()
    assert gateway.wait(timeout_s=1) == -signal.SIGKILL
