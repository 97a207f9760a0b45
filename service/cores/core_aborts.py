"""Aborts that nobody here asked for: a core that shuts down ends its requests so, and refuses new ones.

What such a core ends goes on in the next. But other front ends may have had everything aborted, which is an end like
any other; so the core is asked something. One that shuts down refuses to answer.
"""

import logging
from collections.abc import Awaitable, Callable

from core.wire.messages import EngineCoreOutput
from service.admission.live_call import LiveRequest
from service.cores.engine import Engine
from service.cores.engines import Engines
from service.cores.utility_calls import UtilityError
from service.errors import Unavailable
from service.to_the_end import ToTheEnd

logger = logging.getLogger(__name__)

Deliver = Callable[[LiveRequest, EngineCoreOutput], None]


class CoreAborts:
    """Owned by the event loop. ``ask`` has the core of a rank answer, ``deliver`` lets a request end."""

    def __init__(self, engines: Engines, ask: Callable[[int], Awaitable[object]], deliver: Deliver) -> None:
        self._engines = engines
        self._ask = ask
        self._deliver = deliver
        self._kept: dict[int, list[tuple[LiveRequest, EngineCoreOutput]]] = {}
        self._work = ToTheEnd()

    def keep(self, live: LiveRequest, output: EngineCoreOutput) -> None:
        """Until it is known why the core has ended ``live``."""
        engine = self._engines.all[live.call.stream.rank]
        kept = self._kept.setdefault(engine.rank, [])
        kept.append((live, output))
        if len(kept) == 1 and not engine.is_leaving:
            self._work.begin(self._ask_why(engine))

    def forget(self, rank: int) -> None:
        """The core is gone: what it had goes on elsewhere, or ends with it."""
        self._kept.pop(rank, None)

    async def _ask_why(self, engine: Engine) -> None:
        try:
            await self._ask(engine.rank)
        except UtilityError as error:
            logger.warning("the core of rank %d ends its requests: %s", engine.rank, error)
            self._engines.note_leaving(engine)
            return
        except Unavailable:
            if not engine.pulse.is_silent:
                return  # It is gone, which will be noticed if it is not yet.
        for live, output in self._kept.pop(engine.rank, []):
            self._deliver(live, output)
