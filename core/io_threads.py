"""The two threads between the sockets and the queues. They encode and decode while the model runs.

    front end                     core process
    ROUTER ─────▶ DEALER ─▶ input thread ─▶ input_queue, aborts_queue ─▶ busy loop
    (one pair of sockets per front-end process)                              │
    PULL   ◀───── PUSH ◀── output thread ◀── output_queue ◀──────────────────┘

    coordinator (data parallel alone)
    XPUB   ─────▶ XSUB ──▶ input thread
    PULL   ◀───── PUSH ◀── output thread

Each thread owns its sockets, from the moment it starts, and its codec; only the queues are shared. A thread that dies
says so (``Reports.death``): a core that cannot hear or speak must not live on.
"""

from collections.abc import Callable
from typing import NamedTuple

import zmq

from core.front_ends import FrontEnds
from core.input_thread import InputThread, monitor_of
from core.intake import Intake, OutputQueue
from core.output_thread import LINGER_MS, OutputThread
from core.wire.curve import CurveClient
from core.wire.handshake import engine_identity
from core.wire.messages import EngineAddresses, EngineReadyResponse


class Reports(NamedTuple):
    """Whom the threads tell, from where they are.

    ``unsendable``: ids of requests whose output cannot be sent. ``front_end_lost``: a client index.
    ``death``: why a thread has ended that should not have.
    """

    unsendable: Callable[[list[str]], None]
    front_end_lost: Callable[[int], None]
    death: Callable[[str], None]


class IOThreads:
    """Both threads and their sockets. Connected when made, running from ``start`` to ``close``."""

    def __init__(
        self,
        addresses: EngineAddresses,
        rank: int,
        front_ends: FrontEnds,
        intake: Intake,
        output_queue: OutputQueue,
        reports: Reports,
        curve: CurveClient | None = None,
    ) -> None:
        """With ``curve`` every front end, and the coordinator, is asked for its key."""
        self._context = zmq.Context()
        self._curve = curve
        outputs = [self._connect(zmq.PUSH, address) for address in addresses.outputs]
        identity = engine_identity(rank)
        inputs = [self._connect(zmq.DEALER, address, identity) for address in addresses.inputs]
        to_coordinator = self._connect_to(addresses.coordinator_output, zmq.PUSH)
        from_coordinator = self._connect_to(addresses.coordinator_input, zmq.XSUB)
        self._output = OutputThread(
            outputs, output_queue, front_ends, rank, reports.unsendable, reports.death, to_coordinator
        )
        self._input = InputThread(inputs, front_ends, intake, reports.front_end_lost, reports.death, from_coordinator)

    def start(self, ready_response: EngineReadyResponse) -> None:
        """Introduce the core on every input socket, then listen and speak.

        With a coordinator it waits until all engines have come; raises HandshakeError if they do not.
        """
        self._output.start()
        self._input.start(ready_response)

    def stop_input(self) -> None:
        """No input comes after this: what has arrived is in the input queue. May be called twice."""
        self._input.stop()

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Send what is in the output queue, give it ``linger_ms`` to arrive, and close everything."""
        self._input.stop()
        if self._output.stop(linger_ms):
            self._context.destroy(linger_ms)

    def _connect_to(self, address: str | None, kind: int) -> zmq.Socket[bytes] | None:
        return self._connect(kind, address) if address else None

    def _connect(self, kind: int, address: str, identity: bytes | None = None) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        # Unbounded, as the protocol has it: a front end that stops reading must not stop the busy loop for the others.
        socket.set_hwm(0)
        socket.linger = LINGER_MS
        socket.ipv6 = "[" in address
        # Notices within 20 s that a peer's machine is gone. Not with zmq's heartbeats: the zmq of genuine Rust front
        # ends hangs up on a PING.
        socket.tcp_keepalive, socket.tcp_keepalive_cnt = 1, 3
        socket.tcp_keepalive_idle = socket.tcp_keepalive_intvl = 5
        if self._curve is not None:
            self._curve.protect(socket)
        if identity is not None:
            socket.identity = identity
            monitor_of(socket)
        socket.connect(address)
        return socket
