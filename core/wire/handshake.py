"""How a core and a front end find each other.

    core (DEALER, connects)                      front end (ROUTER, binds)
      │ ── HELLO {local, headless} ────────────────▶ │  identity = rank, 2 bytes little endian
      │ ◀──────────── INIT {addresses of the sockets} │
      │   loads the model, connects to the sockets,   │
      │   sends its ready response on each input      │
      │ ── READY {local, headless} ────────────────▶ │

Either side may come first: HELLO waits in the core's socket until the front end binds.
``CoreHandshake`` is the left side, ``HandshakeServer`` the right one.
"""

import asyncio
import enum
import logging
import math
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

import msgspec
import zmq
import zmq.asyncio

from core.wire.codec import MAX_ERROR_CHARS, Decoder, WireError
from core.wire.curve import HANDSHAKE_FAILURES, CurveClient, CurveServer, RareLog, Refusals, failure_text, is_final
from core.wire.messages import EngineAddresses, EngineHello, EngineInit, ParallelConfig
from core.wire.socket_file import SocketFile, check_free

logger = logging.getLogger(__name__)

INIT_TIMEOUT_S = 300.0
READY_TIMEOUT_S = 600.0
SIGNAL_CHECK_MS = 200
"""How often a core that waits for INIT looks up: a signal just before a wait is handled by Python only after it."""
READY_LINGER_MS = 5000
"""How long READY may still be on its way when the core closes the socket."""


class HandshakeError(Exception):
    """The other side did not come, or said what it must not say. The text names which."""


class GroupError(HandshakeError):
    """Engines that are to work together have been told different things: none of them may serve."""


def engine_identity(rank: int) -> bytes:
    """The routing id of the engine of ``rank`` on every socket."""
    return rank.to_bytes(2, "little")


@dataclass(frozen=True)
class HandshakeConfig:
    """Where a core announces itself, and as what. ``local``: a child of the front end on the same host.

    ``init_timeout_s`` None: it waits for a front end however long it takes. ``curve`` None: in the clear.
    """

    address: str
    rank: int = 0
    local: bool = False
    init_timeout_s: float | None = INIT_TIMEOUT_S
    curve: CurveClient | None = None


class CoreHandshake:
    """The core's side. Use as a context manager; leaving it after READY waits until READY is sent."""

    def __init__(self, config: HandshakeConfig) -> None:
        self._config = config
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.identity = engine_identity(config.rank)
        self._socket.linger = 0
        if config.curve is not None:
            config.curve.protect(self._socket)
        self._failures = self._socket.get_monitor_socket(HANDSHAKE_FAILURES)
        self._failure_log = RareLog()

    def greet(self) -> EngineInit:
        """Say HELLO and wait for INIT. Raises HandshakeError if none comes in time, or not a usable one.

        Also if the front end knows this core's CURVE key and does not want it. Other failures may pass.
        """
        address, timeout_s = self._config.address, self._config.init_timeout_s
        _connect(self._socket, address)
        self._say("HELLO")
        logger.info("waiting for a front end at %s", address)
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not self._socket.poll(SIGNAL_CHECK_MS):
            self._note_failures()
            if time.monotonic() >= deadline:
                raise HandshakeError(f"no INIT from {address} within {timeout_s:g} s")
        return _checked_init(self._socket.recv_multipart())

    def say_ready(self, parallel_config: ParallelConfig) -> None:
        """Say READY: the model is loaded, as one of its group, and the sockets are connected."""
        self._socket.linger = READY_LINGER_MS
        self._say("READY", parallel_config.hash)

    def close(self) -> None:
        self._socket.disable_monitor()
        self._failures.close()
        self._socket.close()
        self._context.term()

    def _note_failures(self) -> None:
        while self._failures.poll(0):
            event = self._failures.recv_multipart()
            if is_final(event):
                raise HandshakeError(f"refused at {self._config.address}: {failure_text(event)}")
            self._failure_log.warning(f"no connection to {self._config.address}: {failure_text(event)}")

    def _say(self, status: Literal["HELLO", "READY"], parallel_config_hash: str | None = None) -> None:
        local = self._config.local
        hello = EngineHello(status, local, headless=not local, parallel_config_hash=parallel_config_hash)
        self._socket.send(msgspec.msgpack.encode(hello))

    def __enter__(self) -> "CoreHandshake":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _connect(socket: zmq.Socket[bytes], address: str) -> None:
    socket.ipv6 = "[" in address
    try:
        socket.connect(address)
    except zmq.ZMQError as error:
        raise HandshakeError(f"cannot connect to {address}: {error}") from error


def _checked_init(frames: list[bytes]) -> EngineInit:
    try:
        init = Decoder(EngineInit).decode(frames)
    except WireError as error:
        raise HandshakeError(f"INIT does not decode: {error}") from error
    inputs, outputs = init.addresses.inputs, init.addresses.outputs
    if not inputs or len(inputs) != len(outputs):
        raise HandshakeError(f"INIT needs as many inputs as outputs, at least one; got {inputs} and {outputs}")
    return init


class EngineProgress(enum.Enum):
    """How far an engine has come, in the words of an error."""

    ABSENT = "said nothing"
    LOADING = "said HELLO but not READY"
    READY = "ready"


class HandshakeServer:
    """The front end's side: answers the HELLO of each engine, until all of them are READY.

    Ranks below ``num_local_engines`` must say that they are local, the others that they are headless, as vLLM's
    front end has it. A second HELLO starts the engine's handshake over: it died while loading, and was restarted.
    Whoever else comes, or says something else, is ignored: the right engine may still be on its way.
    Engines of one data-parallel group must all have been told the same of it.
    """

    def __init__(
        self,
        context: zmq.asyncio.Context,
        address: str,
        addresses: EngineAddresses,
        num_engines: int = 1,
        num_local_engines: int = 0,
        parallel_config: ParallelConfig | None = None,
        curve: CurveServer | None = None,
    ) -> None:
        """Bind ``address`` (ipc, or tcp with port 0 = any). Raises HandshakeError if that fails, or another listens.

        With ``curve`` engines are asked for their keys; whoever made ``context`` keeps a Doorkeeper there.
        """
        self._init = msgspec.msgpack.encode(EngineInit(addresses, parallel_config or ParallelConfig()))
        self._group_hash: str | None = None
        self._num_engines = num_engines
        self._num_local_engines = num_local_engines
        self._progress: dict[bytes, EngineProgress] = {}
        self._last_ignored: str | None = None
        self._decoder = Decoder(EngineHello)
        self._socket = context.socket(zmq.ROUTER)
        self._file: SocketFile | None = None
        self._refusals: Refusals | None = None
        if curve is not None:
            curve.protect(self._socket)
            self._refusals = Refusals(self._socket)
        self._bind(address)
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        """Where engines connect: with the real port."""

    async def run(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return when every engine is READY. May be called again, for engines that were started again.

        Raises HandshakeError, naming the engine and what was ignored last, if one is not READY in ``timeout_s``.
        """
        self._progress = {engine_identity(rank): EngineProgress.ABSENT for rank in range(self._num_engines)}
        self._last_ignored = None
        try:
            async with asyncio.timeout(timeout_s):
                while self._pending():
                    identity, *frames = await self._socket.recv_multipart()
                    await self._take_or_ignore(identity, frames)
        except TimeoutError:
            ignored = f"; ignored last: {self._last_ignored}" if self._last_ignored else ""
            raise HandshakeError(f"not ready within {timeout_s:g} s: {self._pending()}{ignored}") from None

    async def successors(self) -> AsyncIterator[int]:
        """After ``run``: the rank of each engine that says HELLO anew. Endless.

        It gets INIT, and starts to load, when the next one is asked for: all can be prepared for its coming.
        """
        while True:
            identity, *frames = await self._socket.recv_multipart()
            try:
                status = self._checked_hello(identity, frames).status
            except HandshakeError as error:
                await self._ignore(error)
                continue
            if status == "HELLO":
                yield int.from_bytes(identity, "little")
                await self._socket.send_multipart([identity, self._init])

    def close(self) -> None:
        """Stop listening. May be called twice."""
        if self._refusals is not None:
            self._refusals.close()
        self._socket.close(linger=0)
        if self._file is not None:
            self._file.remove()

    def _bind(self, address: str) -> None:
        # A restarted engine comes back under the same identity, maybe before its old connection is known to be gone.
        self._socket.router_handover = True
        self._socket.ipv6 = "[" in address
        path = address.removeprefix("ipc://")
        is_file = path != address and path[0] not in "@*"
        try:
            if is_file:
                check_free(path)
            self._socket.bind(address)
        except (OSError, zmq.ZMQError) as error:
            self.close()
            raise HandshakeError(f"cannot listen at {address}: {error.strerror}") from error
        self._file = SocketFile(path) if is_file else None

    def _pending(self) -> str:
        """The engines that are not ready and how far they have come; empty when all are."""
        return ", ".join(
            f"engine {int.from_bytes(identity, 'little')} {progress.value}"
            for identity, progress in self._progress.items()
            if progress is not EngineProgress.READY
        )

    async def _take_or_ignore(self, identity: bytes, frames: list[bytes]) -> None:
        try:
            await self._take(identity, frames)
        except GroupError:
            raise
        except HandshakeError as error:
            await self._ignore(error)

    async def _ignore(self, error: HandshakeError) -> None:
        self._last_ignored = str(error)[:MAX_ERROR_CHARS]
        logger.warning("ignored: %s", self._last_ignored)
        await asyncio.sleep(0)  # Even if there is no end of them, the time runs out and everybody else has a turn.

    async def _take(self, identity: bytes, frames: list[bytes]) -> None:
        hello = self._checked_hello(identity, frames)
        if hello.status == "HELLO":
            await self._socket.send_multipart([identity, self._init])
            self._progress[identity] = EngineProgress.LOADING
            logger.info("engine %d has come, and loads", int.from_bytes(identity, "little"))
        elif hello.status == "READY" and self._progress[identity] is EngineProgress.LOADING:
            self._check_group(identity, hello.parallel_config_hash)
            self._progress[identity] = EngineProgress.READY
            logger.info("engine %d is ready", int.from_bytes(identity, "little"))
        else:
            raise HandshakeError(f"engine {identity.hex()} {self._progress[identity].value} and now {hello.status!r}")

    def _check_group(self, identity: bytes, group_hash: str | None) -> None:
        if self._group_hash not in (None, group_hash):
            rank = int.from_bytes(identity, "little")
            told = f"{group_hash}, another one {self._group_hash}"
            raise GroupError(f"engine {rank} is of another data-parallel group: its parallel_config_hash is {told}")
        self._group_hash = group_hash

    def _checked_hello(self, identity: bytes, frames: list[bytes]) -> EngineHello:
        if identity not in self._progress:
            raise HandshakeError(f"unknown engine identity {identity.hex()}, expected ranks 0..{self._num_engines - 1}")
        try:
            hello = self._decoder.decode(frames)
        except WireError as error:
            raise HandshakeError(f"engine {identity.hex()}: {error}") from error
        rank = int.from_bytes(identity, "little")
        is_local = rank < self._num_local_engines
        if (hello.local, hello.headless) != (is_local, not is_local):
            said = f"local={hello.local}, headless={hello.headless}"
            raise HandshakeError(f"engine {rank} must be {'local' if is_local else 'headless'}, it says {said}")
        return hello
