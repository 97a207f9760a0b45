"""vLLM's own engine as a child of the gateway: `python -m service.cores.vllm_engine`, between the two.

    gateway ── spawn ──▶ this process ── spawn ──▶ vllm serve --headless ── spawn ──▶ engine cores, workers
            ── lifeline pipe ──▶                   └──────────── one process group ─────────────────────┘
            ── SIGTERM ──▶              ── SIGTERM, and SIGKILL to all of the group when its time is up ─▶

vLLM's engine has no lifeline: it outlives a gateway that is killed, and leaves workers behind when it is killed itself.
This process ends with the engine, whose group it then sweeps, and the engine ends with the gateway. What it says on the
wire is not seen here: the engine dials the gateway's handshake, as headless engines of other hosts do.
"""

import argparse
import logging
import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from service.logs import configure_logging

logger = logging.getLogger(__name__)

_ORPHAN_GRACE_S = 5.0
"""How long the engine may take when the gateway is gone: nobody is left to finish anything for."""
_VLLM_SERVE = ("-m", "vllm.entrypoints.cli.main", "serve")
_SIGNAL_EXIT_CODE = 128
"""And the number of the signal: the exit code of who ended by one, as shells have it."""


class VllmEngine:
    """``command`` in a process group of its own. ``lifeline_fd``: read end of a pipe that ends with the gateway.

    ``terminate_grace_s``: how long it may take over SIGTERM.
    """

    def __init__(self, command: Sequence[str], lifeline_fd: int, terminate_grace_s: float) -> None:
        """Start it. Raises OSError if that fails."""
        self._terminate_grace_s = terminate_grace_s
        self._deadline = math.inf
        self._lifeline_fd = lifeline_fd
        self._signals = _signal_pipe()
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
        self._pid_fd = os.pidfd_open(self._process.pid)
        self._sources = [self._pid_fd, self._signals.fileno(), lifeline_fd]

    def run(self) -> int:
        """Until the engine and all that it started have ended. Its exit code, negative: the signal that ended it."""
        while self._pid_fd not in (readable := self._readable_in_time()):
            if not readable:
                self._end_by_force()
            if self._signals.fileno() in readable:
                self._on_signal()
            if self._lifeline_fd in readable:
                self._on_lifeline()
        # Not reaped yet, so that the group's number cannot be another's by now.
        self._kill_group()
        return self._process.wait()

    def _readable_in_time(self) -> list[int]:
        """Of the sources; none when the engine's time is up."""
        wait_s = None if self._deadline == math.inf else max(0.0, self._deadline - time.monotonic())
        return select.select(self._sources, [], [], wait_s)[0]

    def _on_signal(self) -> None:
        self._signals.recv(64)
        self._terminate_within(self._terminate_grace_s)

    def _on_lifeline(self) -> None:
        if not os.read(self._lifeline_fd, 64):
            self._sources.remove(self._lifeline_fd)
            logger.warning("the gateway is gone: ending vLLM")
            self._terminate_within(min(_ORPHAN_GRACE_S, self._terminate_grace_s))

    def _terminate_within(self, seconds: float) -> None:
        self._process.terminate()
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def _end_by_force(self) -> None:
        logger.warning("vLLM has not ended in time: killed")
        self._kill_group()
        self._deadline = math.inf

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _signal_pipe() -> socket.socket:
    """Readable once SIGTERM or SIGINT has come."""
    signals, signals_in = socket.socketpair()
    signals_in.setblocking(False)
    signal.set_wakeup_fd(signals_in.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return signals


def engine_command(python: str, model: str, address: str, options: Sequence[str]) -> list[str]:
    """vLLM's command line for engines without a front end that dial ``address``, tcp://HOST:PORT."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    dial = ("--data-parallel-address", host.strip("[]"), "--data-parallel-rpc-port", port)
    return [python, *_VLLM_SERVE, model, "--headless", *dial, *options]


def main(arguments: Sequence[str] | None = None) -> int:
    """What the gateway starts. The exit code is vLLM's own, or 128 and the number of the signal that ended it."""
    flags = _parser().parse_args(arguments)
    configure_logging(flags.log_level, flags.log_format)
    try:
        command = engine_command(flags.engine_python, flags.model, flags.handshake_address, flags.engine_option)
        exit_code = VllmEngine(command, flags.lifeline_fd, flags.terminate_grace_s).run()
    except OSError as error:
        logger.error("exiting: cannot start vLLM: %s", error)
        return 1
    if exit_code:
        end = f"exit code {exit_code}" if exit_code > 0 else f"signal {-exit_code} ({signal.strsignal(-exit_code)})"
        logger.error("exiting: vLLM ended with %s", end)
    return exit_code if exit_code >= 0 else _SIGNAL_EXIT_CODE - exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m service.cores.vllm_engine", allow_abbrev=False)
    parser.add_argument("--engine-python", required=True, help="interpreter of an environment that has vLLM")
    parser.add_argument("--model", required=True)
    parser.add_argument("--engine-option", action="append", default=[], help="a word of vLLM's command line")
    parser.add_argument("--handshake-address", required=True, help="tcp://HOST:PORT")
    parser.add_argument("--lifeline-fd", type=int, required=True)
    parser.add_argument("--terminate-grace-s", type=float, required=True, help="until SIGKILL follows SIGTERM")
    parser.add_argument("--local", action="store_true", help="what every child is told, and vLLM is not")
    parser.add_argument("--data-parallel-rank", help="the same")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    return parser


if __name__ == "__main__":
    sys.exit(main())
