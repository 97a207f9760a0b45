"""How the core comes to its end.

    LOADING ◀─▶ RUNNING ──SIGTERM──▶ REQUESTED ──busy loop──▶ SHUTTING_DOWN ──nothing left──▶ exit
       └────────SIGTERM: SystemExit out of whatever loads────────────▲
                                                    (or waits for the next front end, when the last one is gone)

    main thread      signal handler: moves the state, touches nothing else (it may interrupt anything)
    watcher thread   woken by the signal or by the end of the lifeline; wakes the busy loop, keeps the time limits

The lifeline is the read end of a pipe whose write end lives in the gateway: it ends when the gateway does.
"""

import ctypes
import enum
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import setproctitle

logger = logging.getLogger(__name__)

LOAD_GRACE_S = 3.0
"""A load that SIGTERM has not ended by then is ended by force: it sits in native code."""
ORPHAN_GRACE_S = 5.0
"""A core whose gateway is dead outlives it no longer than this, whatever it is doing."""
CLEANUP_GRACE_S = 10.0
"""Time for cleaning up: longer than the output sockets linger.

Also for the step that is running when the signal comes, or the wait for another rank in it, to end.
"""
_PR_SET_PDEATHSIG = 1


class ShutdownState(enum.Enum):
    LOADING = enum.auto()
    RUNNING = enum.auto()
    REQUESTED = enum.auto()
    SHUTTING_DOWN = enum.auto()


class Shutdown:
    """Whether the core is to go down, and by when. The state moves on the main thread only, and never back to life.

    ``timeout_s`` 0: running requests are aborted at once; above 0: they may run to their end until then.
    ``exit_by_force_after`` is told in how many seconds the process must be gone; None if it is not the core's own.
    """

    def __init__(self, timeout_s: float = 0.0, exit_by_force_after: Callable[[float], None] | None = None) -> None:
        self.timeout_s = timeout_s
        self._exit_by_force_after = exit_by_force_after
        self.state = ShutdownState.LOADING
        self.has_served = False
        self.orphaned = False
        self._signalled = False
        self._deadline = 0.0

    @property
    def requested(self) -> bool:
        return self.state in (ShutdownState.REQUESTED, ShutdownState.SHUTTING_DOWN)

    @property
    def overdue(self) -> bool:
        """Whether what still runs must be aborted."""
        return self.is_overdue_by(0)

    def is_overdue_by(self, seconds: float) -> bool:
        """Whether that long has gone by since what still runs had to be aborted."""
        return self.requested and (self.orphaned or time.monotonic() >= self._deadline + seconds)

    def start_running(self) -> None:
        """The engine is loaded. Raises SystemExit if a signal came but something caught the exception it raised."""
        if self.state is not ShutdownState.LOADING:
            raise SystemExit(1)
        self.state = ShutdownState.RUNNING
        self.has_served = True

    def stop_running(self) -> None:
        """There is nobody to serve, for now. Raises SystemExit if a signal has come, as later ones will."""
        self.state = ShutdownState.LOADING
        if self._signalled:
            raise SystemExit(0)

    def request(self) -> None:
        """Go down. Asked again, it changes nothing."""
        if self.state is ShutdownState.RUNNING:
            self.state = ShutdownState.REQUESTED

    def begin(self) -> None:
        """The busy loop has seen the request: the time for running requests counts from now."""
        self.state = ShutdownState.SHUTTING_DOWN
        self._deadline = time.monotonic() + self.timeout_s
        self.end_within(self.timeout_s + CLEANUP_GRACE_S)

    def end_within(self, seconds: float) -> None:
        """From now on the process is coming to its end, and must not hang on the way."""
        if self._exit_by_force_after is not None:
            self._exit_by_force_after(seconds)

    def handle_signal(self, signum: int, _frame: FrameType | None) -> None:
        """Handler of SIGTERM and SIGINT. While nobody is served it raises SystemExit; the second signal does nothing.

        The exit code is 0 only if somebody was.
        """
        self._signalled = True
        if self.state is ShutdownState.LOADING:
            self.state = ShutdownState.SHUTTING_DOWN
            raise SystemExit(0 if self.has_served else 128 + signum)
        self.request()


class ShutdownWatcher:
    """Listens for signals and for the end of the lifeline. Made and started on the main thread.

    ``wake`` is called from the watcher's own thread when the busy loop must look at the state.
    """

    def __init__(self, shutdown: Shutdown, wake: Callable[[], None], lifeline_fd: int | None = None) -> None:
        self._shutdown = shutdown
        self._wake = wake
        self._lifeline_fd = lifeline_fd
        self._has_limited_the_step = False
        # Python runs handlers on the main thread, between two bytecodes; this pipe tells of a signal at once.
        self._signals, self._signals_in = socket.socketpair()
        self._signals_in.setblocking(False)

    def start(self) -> None:
        """Take over SIGTERM and SIGINT, for good: one that comes during the cleanup must not cut it short."""
        if self._lifeline_fd is not None:
            # So that a core that is stopped (SIGSTOP) sees the end of its lifeline.
            request_signal_at_parents_death(signal.SIGCONT)
        signal.set_wakeup_fd(self._signals_in.fileno(), warn_on_full_buffer=False)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._shutdown.handle_signal)
        threading.Thread(target=self._watch, name="shutdown-watcher", daemon=True).start()

    def _watch(self) -> None:
        setproctitle.setthreadtitle("core-watcher")
        selector = selectors.DefaultSelector()
        selector.register(self._signals, selectors.EVENT_READ, self._on_signal)
        if self._lifeline_fd is not None:
            selector.register(self._lifeline_fd, selectors.EVENT_READ, lambda: self._on_lifeline(selector))
        while True:
            for key, _ in selector.select():
                key.data()

    def _on_signal(self) -> None:
        self._signals.recv(64)
        if not self._shutdown.has_served:
            exit_by_force_after(LOAD_GRACE_S, unless=lambda: self._shutdown.has_served)
        elif not self._has_limited_the_step:
            self._has_limited_the_step = True
            limit_s = self._shutdown.timeout_s + CLEANUP_GRACE_S
            exit_by_force_after(limit_s, unless=lambda: self._shutdown.state is ShutdownState.SHUTTING_DOWN)
        self._wake()

    def _on_lifeline(self, selector: selectors.BaseSelector) -> None:
        assert self._lifeline_fd is not None
        if os.read(self._lifeline_fd, 64):
            return
        selector.unregister(self._lifeline_fd)
        self._shutdown.orphaned = True
        exit_by_force_after(ORPHAN_GRACE_S)
        logger.warning("the gateway is gone, shutting down")
        os.kill(os.getpid(), signal.SIGTERM)


def request_signal_at_parents_death(signum: signal.Signals) -> None:
    """From the system, if it can: whatever this process is doing then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum)


def exit_by_force_after(seconds: float, unless: Callable[[], bool] = lambda: False) -> None:
    """End the process in ``seconds`` if it has not ended by itself: no cleanup, no way to hang."""

    def exit_by_force() -> None:
        if not unless():
            # On a thread of its own: the log may be what hangs, on a pipe that nobody reads.
            log = threading.Thread(target=logger.error, args=("not ended after %g s: exiting by force", seconds))
            log.daemon = True
            log.start()
            log.join(1.0)
            os._exit(1)

    timer = threading.Timer(seconds, exit_by_force)
    timer.daemon = True
    timer.start()
