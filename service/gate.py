"""Who is let in: the gateway's state as every call finds it."""

import asyncio
import enum
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from core.wire.messages import EngineReadyResponse
from service.cores.adapters import Adapters
from service.engine_client import EngineClient
from service.errors import Unavailable
from service.generator import Generator
from service.served_model import ServedModel
from service.servicers.health import Health


class Closed(enum.Enum):
    """Why no call is let in, in words for the client."""

    LOADING = "the model is still loading"
    DRAINING = "the server is draining"
    CORE_LOST = "the engine core is gone"


@dataclass(frozen=True)
class Backend:
    """A loaded model and the cores that run it; ``engine_info`` is what they say of themselves together."""

    model: ServedModel
    engine: EngineClient
    engine_info: EngineReadyResponse
    generator: Generator
    adapters: Adapters
    start_time: float = field(default_factory=time.time)


class Gate:
    """Closed while the cores load, open while they serve, closed for good by a drain or when a core is lost."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._backend: Backend | None = None
        self._closed: Closed | None = Closed.LOADING
        self._asleep = False
        self._is_answering = True
        self._is_lame_duck = False
        self.closed_for_good = asyncio.Event()
        """Set when no call is let in any more."""
        self.on_asleep: Callable[[bool], None] = lambda _is_asleep: None
        """Called when the engine is put to sleep or woken."""

    def open(self, backend: Backend) -> None:
        """Let calls in, unless it was closed for good meanwhile."""
        self._backend = backend
        if self._closed is Closed.LOADING:
            self._closed = None
        self._tell_health()

    def be_lame_duck(self) -> None:
        """Say NOT_SERVING and let calls in all the same: they are sent by those who have not noticed yet."""
        self._is_lame_duck = True
        self._tell_health()

    def close(self, why: Closed) -> None:
        """Let no new call in. Calls that are in go on."""
        self._closed = why
        self.closed_for_good.set()
        self._tell_health()

    def set_answering(self, is_answering: bool) -> None:
        """Whether some core takes requests. A call is let in all the same: there may be one soon."""
        self._is_answering = is_answering
        self._tell_health()

    def set_asleep(self, asleep: bool) -> None:
        """An engine without its memory is not ready; calls are let in all the same, and wait."""
        self._asleep = asleep
        self._tell_health()
        self.on_asleep(asleep)

    @property
    def is_asleep(self) -> bool:
        """The engine has given its memory back."""
        return self._asleep

    def enter(self) -> Backend:
        """The backend, for a call that wants work done. Raises Unavailable while the gate is closed."""
        if self._closed is not None:
            raise Unavailable(self._closed.value, reason=self._closed.name)
        return self.look_in()

    def look_in(self) -> Backend:
        """The backend, for a call that only asks about it, drained or not. Raises Unavailable before there is one."""
        if self._backend is None:
            raise Unavailable(Closed.LOADING.value, reason=Closed.LOADING.name)
        return self._backend

    async def drain(self, timeout_s: float) -> int:
        """Close, and wait until no request runs; abort those that still do after ``timeout_s``, and return how many."""
        if self._closed is not Closed.CORE_LOST:
            self.close(Closed.DRAINING)
        return await self._backend.generator.drain(timeout_s) if self._backend else 0

    def _tell_health(self) -> None:
        is_open = self._closed is None and not self._is_lame_duck
        self._health.set_serving(is_open and self._is_answering and not self._asleep)
