"""The cores: who is there, who is gone, who is silent.

    ready      ◀── a core's first message on its connection, the ready response, of each rank
    lost       ◀── a hang-up, a notice of death, or the supervisor: ``lose_core``
    silence    ◀── ``beat``, from a timer: a core that says nothing and does not answer the question
    successor  ◀── HELLO of a rank, then another ready response: in the place of a core that is gone, or that is there
    given up   ◀── the supervisor: nobody comes in the place of a core that is gone

Everything runs on the event loop.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from core.wire.codec import Decoder, WireError
from core.wire.curve import CurveServer
from core.wire.handshake import HandshakeServer
from core.wire.messages import (
    ENGINE_CORE_DEAD,
    EngineAddresses,
    EngineCoreOutputs,
    EngineInit,
    EngineReadyResponse,
    RequestType,
    UtilityCall,
)
from core.wire.version import WireVersion, version_of_core
from service.cores.engine import Engine, checked, combined, why_unavailable
from service.cores.engine_sockets import EngineSockets, Hearers, NotConnectedError
from service.cores.last_words import LastWords
from service.cores.output_decoder import OutputDecoder
from service.errors import Unavailable

logger = logging.getLogger(__name__)

QUESTION = "is_scheduler_paused"
"""Every core has the answer at hand; that it does not know the question would be an answer too."""


class Dependent(Protocol):
    """Who waits for cores."""

    def take(self, outputs: EngineCoreOutputs, broken_ids: list[str]) -> None:
        """One message; of the requests of ``broken_ids`` it had outputs that do not decode."""

    def engine_is_gone(self, engine: Engine, error: Unavailable) -> None:
        """Nothing that waits for ``engine`` will come. It tells whether another is awaited in its place."""

    def engine_is_back(self, engine: Engine) -> None:
        """Another core is there in the place of one that is gone. It knows nothing."""

    def engine_is_silent(self, engine: Engine, error: Unavailable) -> None:
        """It may take long until something comes from ``engine``."""


class Engines:
    """``ready`` resolves with what the cores say of themselves together, once all are ready; ``lost`` with the reason
    when the first of them is gone for good.
    """

    def __init__(
        self,
        input_address: str,
        output_address: str,
        num_engines: int = 1,
        heartbeat_timeout_s: float = 10.0,
        client_index: int = 0,
        *,
        awaits_successors: bool = False,
        curve: CurveServer | None = None,
    ) -> None:
        """Bind both addresses, ``ipc://`` or ``tcp://`` (port 0 = any). Raises EngineAddressError if that fails.

        A core that tcp leads to is lost when its host has been silent for ``heartbeat_timeout_s``.
        ``client_index``: which of the addresses in INIT these are, where a core finds several.
        ``awaits_successors``: once all have been ready, none is gone for good until ``give_up`` says so.
        With ``curve`` cores are asked for their keys.
        """
        self.client_index = client_index
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[EngineReadyResponse] = self._loop.create_future()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self.all = tuple(Engine(rank) for rank in range(num_engines))
        self.on_service: Callable[[bool], None] = lambda _is_serving: None
        """Called when no core takes requests any more, and when one does again."""
        self.on_news: Callable[[Engine], None] = lambda _engine: None
        """Called when a core is lost, and when one has come in its place or was sent away."""
        self.num_beats_to_be_stuck = math.inf
        """How many beats a core may miss before it is lost."""
        self.num_lost = 0
        """Cores that are gone, or whose place another took."""
        self.num_restarts = 0
        """Cores that took the place of another."""
        self.last_interruption_s = 0.0
        """For how long the last rank that was lost took no requests."""
        self.awaits_successors = awaits_successors
        self._was_serving = True
        self._are_let_go = False
        self._dependent: Dependent | None = None
        self._expected_successors: set[int] = set()
        self.wire_version: WireVersion | None = None
        """Which all cores speak; None until the first is ready."""
        self._output_decoder = OutputDecoder()
        self._ready_decoder = Decoder(EngineReadyResponse)
        hearers = Hearers(
            self._on_message,
            self._on_output,
            lambda connection: self._last_words.note_hangup(connection),
            lambda: self._last_words.end_if_heard(),
        )
        self._curve = curve
        self._sockets = EngineSockets(input_address, output_address, hearers, heartbeat_timeout_s, curve)
        self._last_words = LastWords(self.all, self._sockets, self.lose_core, self.ask)

    def __repr__(self) -> str:
        return f"Engines({', '.join(engine.state for engine in self.all)})"

    @property
    def addresses(self) -> EngineAddresses:
        """Where the cores are to connect."""
        return self._sockets.addresses

    @property
    def alive(self) -> list[Engine]:
        """The cores that are ready and not lost."""
        return [engine for engine in self.all if engine.is_alive]

    @property
    def num_waiting(self) -> int:
        """Sequences that do not run yet, at all of them."""
        return sum(engine.num_waiting for engine in self.alive)

    @property
    def are_serving(self) -> bool:
        """Whether some core takes requests."""
        return any(engine.takes_requests for engine in self.all)

    def serve(self, dependent: Dependent) -> None:
        """Hand what comes from the cores to ``dependent``."""
        self._dependent = dependent

    def handshake(self, address: str, num_local_engines: int, init: EngineInit) -> HandshakeServer:
        """A handshake that tells cores ``init``. Raises HandshakeError if ``address`` cannot be bound."""
        told = init.addresses, len(self.all), num_local_engines, init.parallel_config, self._curve
        return HandshakeServer(self._sockets.context, address, *told)

    def send(self, engine: Engine, request_type: RequestType, message: object) -> None:
        """Raises Unavailable if ``engine`` is not there."""
        if not engine.is_alive or not self.ready.done():
            raise why_unavailable([engine])
        try:
            self._sockets.send(engine.identity, request_type, engine.encoder.encode(message))
        except NotConnectedError as error:
            raise why_unavailable([engine]) from error

    def meet(self, rank: int, response: EngineReadyResponse) -> None:
        """A core that was ready before there was this front end: it does not introduce itself, it is there already."""
        engine = self.all[rank]
        if engine.response is None:
            self._agree_on_version(version_of_core(response))
            engine.introduce(response, None)
            self._note_ready()

    def beat(self) -> None:
        """Ask the cores that were not heard for a beat, and notice those that do not answer. See ``Pulse``."""
        for engine in self.alive:
            was_silent = engine.pulse.is_silent
            if engine.pulse.beat():
                self.ask(engine)
            if engine.pulse.is_silent and not was_silent:
                self._note_silence(engine)
            if engine.pulse.num_missed >= self.num_beats_to_be_stuck:
                self.lose_core(engine.rank, "it is stuck: it has not answered for too long")
        self._tell_service()

    def ask(self, engine: Engine) -> None:
        """A question that every core answers: then it is heard."""
        with suppress(Unavailable):
            self.send(engine, RequestType.UTILITY, UtilityCall(self.client_index, 0, QUESTION, []))

    def expect_successor(self, rank: int) -> None:
        """A core of ``rank`` has said HELLO: once it is ready, it takes the place of the one before it."""
        self._expected_successors.add(rank)
        self._sockets.let_take_over(True)

    def lose_core_after_last_words(self, rank: int, reason: str) -> None:
        """The core is gone, but what it said last may still be on its way: read that first."""
        self._last_words.lose_after(self.all[rank], reason)

    def lose_core(self, rank: int, reason: str) -> None:
        """The core is gone: end what waits for it, or let it wait for another. Only the first call counts."""
        engine = self.all[rank]
        if engine.lost_because is not None or self._are_let_go:
            return
        engine.lose(reason, is_awaited=self.awaits_successors and self.ready.done())
        self.num_lost += 1
        self._last_words.note_lost(engine)
        self._tell_gone(engine, why_unavailable([engine]))
        if not engine.is_awaited:
            self._note_lost_for_good(engine)
        self._tell_service()
        self.on_news(engine)

    def give_up(self, rank: int, reason: str) -> None:
        """No other core comes in the place of ``rank``, which is lost: end everything that waits for one."""
        engine = self.all[rank]
        engine.is_awaited, engine.lost_because = False, reason
        self._tell_gone(engine, why_unavailable([engine]))
        self._note_lost_for_good(engine)

    def note_leaving(self, engine: Engine) -> None:
        """It takes no more requests, and will soon be gone."""
        engine.is_leaving = True
        self._tell_service()

    def note_settled(self, engine: Engine) -> None:
        """A core that has come in the place of another was told all that it must know."""
        engine.is_settling = False
        self.last_interruption_s = time.monotonic() - engine.lost_at
        logger.warning("rank %d serves again after %.1f s", engine.rank, self.last_interruption_s)
        self._tell_service()

    def let_go(self) -> None:
        """The cores are told to end, now that nobody waits for them: that they go is no loss from here on."""
        self._are_let_go = True

    def close(self) -> None:
        """Stop reading and release the sockets. May be called twice."""
        self._sockets.close()

    def _on_message(self, identity: bytes, connection: int, payload: list[bytes]) -> None:
        """The first message on a connection is the ready response; there are no others."""
        rank = int.from_bytes(identity, "little")
        engine = self.all[rank] if rank < len(self.all) else None
        if engine is None or engine.identity != identity:
            logger.warning("a message from a stranger was dropped, identity %s", identity.hex()[:64])
        elif connection != engine.connection and (engine.lost_because is None or engine.is_awaited):
            self._introduce(engine, connection, payload)

    def _introduce(self, engine: Engine, connection: int, payload: list[bytes]) -> None:
        is_expected = engine.rank in self._expected_successors
        if engine.is_alive and not is_expected:
            self.lose_core(engine.rank, "another core came in its place without a handshake")
        elif engine.is_awaited and not is_expected:
            logger.warning("a core that says it is of rank %d, without a handshake, is not heard", engine.rank)
        else:
            self._expected_successors.discard(engine.rank)
            self._sockets.let_take_over(bool(self._expected_successors))
            self._welcome(engine, connection, payload)

    def _welcome(self, engine: Engine, connection: int, payload: list[bytes]) -> None:
        try:
            response = checked(self._ready_decoder.decode(payload))
            self._agree_on_version(version_of_core(response))
            engine.check_can_stand_in(response)
        except WireError as error:
            self._send_away(engine, f"its ready response is none: {error}")
            return
        is_successor = engine.response is not None
        if engine.is_alive:
            self._lose_to_successor(engine)
        engine.introduce(response, connection)
        if is_successor:
            self._install(engine)
        else:
            self._note_ready()

    def _note_ready(self) -> None:
        """If all are."""
        if len(self.alive) == len(self.all):
            self.ready.set_result(combined([engine.response for engine in self.all if engine.response is not None]))

    def _send_away(self, engine: Engine, reason: str) -> None:
        """A core that cannot serve, maybe in the place of another that could."""
        if engine.lost_because is None:
            self.lose_core(engine.rank, reason)
            return
        logger.error("a core for rank %d is of no use: %s", engine.rank, reason)
        engine.refusal = reason
        self.on_news(engine)

    def _agree_on_version(self, version: WireVersion) -> None:
        """Raises WireError if another core speaks another one: a message does not tell which it is of."""
        if self.wire_version is None:
            self.wire_version, self._output_decoder = version, OutputDecoder(version)
        elif version is not self.wire_version:
            raise WireError(f"it speaks the wire of {version.value}, other cores that of {self.wire_version.value}")

    def _lose_to_successor(self, engine: Engine) -> None:
        """What the predecessor had is gone with it, though it may still run: nobody tells it."""
        logger.warning(
            "another core says that it is rank %d, and takes the place of the one that was there. If that still runs,"
            " end it, or give each a --data-parallel-rank of its own",
            engine.rank,
        )
        engine.lose("another took its place", is_awaited=self.awaits_successors)
        self._last_words.note_lost(engine)
        self.num_lost += 1
        self._tell_gone(engine, Unavailable("the engine core is gone: another took its place", reason="CORE_LOST"))

    def _install(self, engine: Engine) -> None:
        logger.warning("another core has taken the place of rank %d", engine.rank)
        self.num_restarts += 1
        if self._dependent is not None:
            self._dependent.engine_is_back(engine)
        self._tell_service()
        self.on_news(engine)

    def _note_lost_for_good(self, engine: Engine) -> None:
        if not self.lost.done():
            reason = engine.lost_because or ""
            self.lost.set_result(reason if len(self.all) == 1 else f"rank {engine.rank}: {reason}")

    def _tell_service(self) -> None:
        if self.ready.done() and self.are_serving != self._was_serving:
            self._was_serving = self.are_serving
            self.on_service(self._was_serving)

    def _on_output(self, frames: list[bytes]) -> None:
        if frames[0] == ENGINE_CORE_DEAD:
            self._last_words.note_death()
            return
        broken_ids: list[str] = []
        try:
            outputs = self._output_decoder.decode(frames)
        except WireError as error:
            logger.error("undecodable output message: %s", error)
            outputs, broken_ids = self._output_decoder.salvage(frames)
        self._hear(outputs)
        if self._dependent is not None:
            self._dependent.take(outputs, broken_ids)

    def _hear(self, outputs: EngineCoreOutputs) -> None:
        """Whose message it is it says itself; a core that is alone need not."""
        rank = outputs.engine_index if len(self.all) > 1 else 0
        if not 0 <= rank < len(self.all):
            outputs.engine_index = 0
            return
        outputs.engine_index, engine = rank, self.all[rank]
        engine.record(outputs)
        if engine.pulse.heard():
            logger.warning("the engine core of rank %d answers again", rank)
            self._tell_service()
        self._last_words.note_heard(engine)

    def _note_silence(self, engine: Engine) -> None:
        logger.error("the engine core of rank %d does not answer", engine.rank)
        if self._last_words.has_unnamed_death:
            self.lose_core(engine.rank, "a core reported a fatal error, and this one does not answer")
        elif self._dependent is not None:
            self._dependent.engine_is_silent(engine, why_unavailable([engine]))

    def _tell_gone(self, engine: Engine, error: Unavailable) -> None:
        if self._dependent is not None:
            self._dependent.engine_is_gone(engine, error)
