"""Where calls are: each is chosen a core, sent to it under a name of its own there, and aborted there.

``at_cores`` is what cores are heard of: an output under another name is nobody's.
"""

import contextlib
from collections.abc import Iterable

from core.wire.messages import EngineCoreRequest, RequestType
from core.wire.version import shaped_request
from service.admission.live_call import LiveCall, LiveRequest
from service.cores.engine import Engine, why_unavailable
from service.cores.engines import Engines
from service.cores.load_balancer import LoadBalancer
from service.cores.prefix_memory import PrefixMemory
from service.cores.wave_client import WaveClient
from service.errors import Unavailable


class Placement:
    """Owned by the event loop. ``waves``: of engines that step in lockstep."""

    def __init__(self, engines: Engines, waves: WaveClient | None) -> None:
        self.at_cores: dict[str, LiveRequest] = {}
        """By the id under which their core knows them."""
        self._engines = engines
        self._waves = waves
        self._balancer: LoadBalancer | None = None

    def candidates(self, request: EngineCoreRequest) -> list[Engine]:
        """The cores that may have it: all, or the one that it names."""
        rank = request.data_parallel_rank
        return [*self._engines.all] if rank is None else [self._engines.all[rank]]

    def choose(self, request: EngineCoreRequest) -> Engine | None:
        """A core for it; None: there soon will be one. Raises Unavailable if there is none, nor will be."""
        candidates = self.candidates(request)
        loads = {engine.rank: engine.load for engine in self._engines.all if engine.takes_requests}
        if not any(engine.rank in loads for engine in candidates):
            if any(engine.is_coming for engine in candidates):
                return None
            raise why_unavailable(candidates)
        prompt = request.prompt_token_ids or ()
        lora = request.lora_request
        salt = request.cache_salt if lora is None else (request.cache_salt, lora.lora_int_id)
        return self._engines.all[self._balance().choose(loads, prompt, salt, request.data_parallel_rank)]

    def submit(self, call: LiveCall, engine: Engine) -> None:
        """Raises Unavailable if the core has just gone, NotResumableError if it cannot go on with ``call``."""
        assert engine.response is not None, "it takes requests"
        call.stream.rank = engine.rank
        for live, request in call.submissions(engine.response):
            self.at_cores.pop(live.core_id, None)
            live.core_id = request.request_id
            self.at_cores[live.core_id] = live
            self._send(engine, request)

    def withdraw(self, call: LiveCall) -> None:
        """No core is heard of ``call`` any more."""
        for live in call.requests:
            self.at_cores.pop(live.core_id, None)

    def abort(self, rank: int, requests: Iterable[LiveRequest]) -> None:
        """A core that is gone has nothing to abort."""
        self.abort_named(rank, [live.core_id for live in requests if live.core_id in self.at_cores])

    def abort_named(self, rank: int, core_ids: list[str]) -> None:
        """As ``abort``, of what the core knows by these ids."""
        if core_ids:
            with contextlib.suppress(Unavailable):
                self._engines.send(self._engines.all[rank], RequestType.ABORT, core_ids)

    def forget_prefixes(self, rank: int | None = None) -> None:
        """The prefix cache of ``rank``, None: of every rank, is empty now."""
        if rank is None:
            self._balancer = None
        elif self._balancer is not None:
            self._balancer.forget(rank)

    def _balance(self) -> LoadBalancer:
        """Made with the first request: now the size of a block is known."""
        if self._balancer is None:
            response = self._engines.all[0].response
            assert response is not None, "some core answers, so all have been ready"
            self._balancer = LoadBalancer(len(self._engines.all), PrefixMemory(response.block_size))
        return self._balancer

    def _send(self, engine: Engine, request: EngineCoreRequest) -> None:
        request.client_index = self._engines.client_index
        if self._waves is not None:
            request.current_wave = self._waves.wave
        assert self._engines.wire_version is not None, "the core that was chosen is ready"
        self._engines.send(engine, RequestType.ADD, shaped_request(request, self._engines.wire_version))
        engine.num_sent_since_stats += 1
        if self._waves is not None:
            self._waves.note_request(engine.identity)
