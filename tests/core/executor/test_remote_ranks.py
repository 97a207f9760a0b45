"""Ranks on two hosts: they find each other in any order, and neither host outlives the other."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import pytest

from core.executor.channel import Channel, as_connection, dial
from core.executor.multi_process import MultiProcessExecutor
from core.executor.orders import Hello
from core.executor.remote_ranks import accept_ranks
from core.hosts import Hosts
from core.wire.codec import Encoder
from tests.core.executor.fake_rank import MODULE, fake_ranks, two_hosts
from tests.core.executor.test_multi_process import Watch, decode, prefill
from tests.core.front_end import PATIENCE_S, ROOT


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class TwoHosts:
    """The first in this process, with the core's executor; the second a process."""

    def __init__(self) -> None:
        port = free_port()
        self.second = subprocess.Popen([sys.executable, "-m", MODULE, "host", "hangs-in-steps", str(port)], cwd=ROOT)
        try:
            self.executor: MultiProcessExecutor = fake_ranks("whole", two_hosts(0, port))
        except BaseException:
            self.second.kill()
            raise
        self.executor.initialize_kv_cache(8, 16)


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    hosts = TwoHosts()
    yield hosts
    hosts.executor.shutdown()
    hosts.second.kill()
    hosts.second.wait()


def test_a_shutdown_ends_both_hosts(hosts: TwoHosts) -> None:
    """Only the ranks of its own host are the core's children; those of the other end too, and well."""
    assert list(hosts.executor.pids) == [0]
    assert hosts.executor.collective_rpc("check_health", None, [], {}) == [None, None]
    assert hosts.executor.execute_model(prefill("a")).result().sampled_token_ids.keys() == {"a"}
    hosts.executor.shutdown()
    assert hosts.second.wait(PATIENCE_S) == 0


def test_a_host_that_is_gone_is_a_lost_rank(hosts: TwoHosts) -> None:
    """Killed, with the step in flight that it hangs in."""
    watch = Watch(hosts.executor)
    hosts.executor.execute_model(prefill("a")).result()
    hosts.second.kill()
    watch.wait()
    with pytest.raises(RuntimeError, match="rank 1 is gone: its connection has ended"):
        hosts.executor.execute_model(decode("a"))


def test_a_host_ends_when_its_core_is_gone(hosts: TwoHosts) -> None:
    """Here by the death of a rank, for which the core ends all."""
    watch = Watch(hosts.executor)
    hosts.executor._children.kill()
    watch.wait()
    assert hosts.second.wait(PATIENCE_S) == 1


def test_sigterm_ends_a_host_without_a_core(hosts: TwoHosts) -> None:
    """At once, as it was given no time to go on; its exit code names the signal."""
    hosts.second.send_signal(signal.SIGTERM)
    assert hosts.second.wait(PATIENCE_S) == 128 + signal.SIGTERM


def say(port: int, hello: Hello) -> Connection:
    connection = as_connection(dial("127.0.0.1", port, PATIENCE_S))
    Channel(connection, Hello).send(Encoder().encode(hello))
    return connection


def test_strangers_are_not_ranks() -> None:
    """They are hung up on, and so is a host that believes in another number of ranks; the right one is found."""
    port = free_port()
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(accept_ranks, two_hosts(0, port), PATIENCE_S / 4)
        with dial("127.0.0.1", port, PATIENCE_S) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):  # What was not read is thrown away.
                assert stranger.recv(100) == b""
        with say(port, Hello(1, 3)) as wrong, pytest.raises(EOFError):
            wrong.recv_bytes()
        with say(port, Hello(1, 2)):
            (rank,) = found.result()
            assert rank == 1


def test_hosts_that_do_not_come() -> None:
    """Who is missing, and where they should have come to; or that nobody could."""
    port = free_port()
    with pytest.raises(ValueError, match=r"cannot listen at 192\.0\.2\.1:"):
        accept_ranks(Hosts(2, 2, 0, "192.0.2.1", port))
    with pytest.raises(TimeoutError, match=rf"ranks \[1\] have not come to 127\.0\.0\.1:{port} in 0\.01 s"):
        accept_ranks(two_hosts(0, port), timeout_s=0.01)
